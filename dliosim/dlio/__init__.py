"""DLIO's workload files (YAML): read, and written as patterns."""

#: Ends of the names of these files.
ENDINGS = (".yaml", ".yml")

#: First letters of overrides of their keys (`++train.epochs=7`, `~train.epochs`), by which they differ from -D.
OVERRIDE_MARKS = ("+", "~")
