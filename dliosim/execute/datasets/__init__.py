"""Finding, laying out and writing data sets."""
