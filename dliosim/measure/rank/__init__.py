"""Measuring on one rank: clock readings of calls, steps and phases, and the records that they add up to."""
