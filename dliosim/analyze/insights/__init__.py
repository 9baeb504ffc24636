"""Insights: figures with thresholds; and changes between jobs."""
