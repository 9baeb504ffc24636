"""Traces of DFTracer (.pfw, .pfw.gz), versions 1 and 2, as one table of events."""
