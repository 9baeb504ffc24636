"""Figures over all ranks: each is declared once, and follows from the records of the ranks."""
