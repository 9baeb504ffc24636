"""Figures of a job: measured on its events, its counters and its results."""
