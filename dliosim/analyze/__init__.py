"""Analysis of a job in words and tables, from the events of its own trace or another tool's."""
