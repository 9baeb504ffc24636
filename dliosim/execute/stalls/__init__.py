"""Seeing that nothing moves, and who keeps the others waiting."""
