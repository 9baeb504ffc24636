"""Traces of one job, whatever wrote them, as one table of events."""
