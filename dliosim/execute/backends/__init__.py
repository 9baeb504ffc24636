"""Backends: one module for each way to read or write bytes."""
