"""Directories that are complete or absent, and locked by one job."""
