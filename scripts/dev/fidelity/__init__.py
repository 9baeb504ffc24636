"""System calls of real data loaders, and how similar those of dliosim are."""
