"""Calls made by hand, for tests of the backends."""

from dliosim.execute.tried import make_calls

__all__ = ["make_calls"]
