"""A format and a backend for dliosim."""
