"""Results as values: the machine, the phases of a run with their figures, and the whole run."""
