"""Predictions: an epoch in virtual time, on a storage that is described."""
