"""How many processes a workload is planned for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_RANKS: Final = 1 << 22
"""As many as `measure.records.pack_arrival` can tell apart."""


@dataclass(frozen=True, slots=True)
class Job:
    """The ranks and nodes of one job: `$ranks`, `$nodes` and `$ranks_per_node` of a pattern."""

    ranks: int
    nodes: int = 1

    @property
    def ranks_per_node(self) -> int:
        """Ranks on the fullest node if they are dealt out evenly, which a launcher need not do."""
        return -(-self.ranks // self.nodes)
