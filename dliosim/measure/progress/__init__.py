"""Progress of a running job: states of ranks in shared memory, their figures, and ranks that keep others waiting."""
