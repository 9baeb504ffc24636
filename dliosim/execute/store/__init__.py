"""Directories that are complete or absent, and held by one job."""
