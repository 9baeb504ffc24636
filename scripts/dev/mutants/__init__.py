"""Patterns that are almost right, or absurd: how they are drawn, and how `check`, `explain` and `plan` are tried."""
