"""Figures over all ranks, each declared once and derived from the records of the ranks."""
