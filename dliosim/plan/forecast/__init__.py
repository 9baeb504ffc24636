"""Forecasts of a run."""
