"""Pictures of results. Only this package needs matplotlib: its figures and the Agg and SVG backends, no pyplot."""
