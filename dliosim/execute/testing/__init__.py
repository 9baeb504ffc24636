"""Tests for backends of other packages."""
