"""What happened in a job, in words and tables, from the events of its own trace or of another tool's."""
