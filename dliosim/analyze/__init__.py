"""Analysis of a job in words and tables, by the events of its own trace or of another tool's."""
