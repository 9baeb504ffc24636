"""The number of processes that a workload is planned for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Number of ranks that `measure.records.pack_arrivals` can distinguish
MAX_RANKS: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class Job:
    """The ranks and nodes of one job: `$ranks`, `$nodes` and `$ranks_per_node` of a pattern."""

    ranks: int  #: ranks of the job
    nodes: int = 1  #: nodes of the job

    @property
    def ranks_per_node(self) -> int:
        """Ranks on the fullest node if they are dealt evenly; a launcher may place them in another way."""
        return -(-self.ranks // self.nodes)
