"""Faults injected into the calls of a run: what is drawn, and what must hold afterwards."""
