"""What backends of other packages are tested by."""
