"""Batches of a loop: schedule, read-ahead, decoding and the sample cache."""
