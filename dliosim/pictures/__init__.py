"""Pictures of results. The one package that needs matplotlib: only its figures and Agg and SVG backends, no pyplot."""
