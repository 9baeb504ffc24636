"""Calls made by hand, for tests of the backends."""

from dliosim.execute.testing.contract_fixtures import make_calls

__all__ = ["make_calls"]
