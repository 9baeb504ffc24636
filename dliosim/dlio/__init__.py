"""DLIO's workload files (YAML): read, and written as patterns."""

#: Ends of the names of these files.
ENDINGS = (".yaml", ".yml")
