"""Stalls: detecting that nothing moves, and naming the ranks that block the others."""
