"""The split of a model over ranks: tensor, data and pipeline parallel, and the number of ranks that take part."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

RankOrder = Literal["tp-dp-pp", "tp-pp-dp"]
"""Megatron's words for the axis along which neighbours differ (tensor), the next one, and that of the farthest."""


@dataclass(frozen=True, slots=True)
class Split:
    """`tensor` x `pipeline` x `data` ranks; tensor-parallel ranks are neighbours."""

    tensor: int  #: tensor-parallel ranks
    pipeline: int  #: pipeline stages
    data: int  #: data-parallel ranks
    played: int = 0  #: ranks that take part (`subset`), from rank 0; 0: all
    order: RankOrder = "tp-dp-pp"  #: which ranks are near; the first order if both are the same

    @property
    def ranks(self) -> int:
        """Ranks that the model is split over."""
        return self.tensor * self.pipeline * self.data

    @property
    def present_ranks(self) -> int:
        """Number of ranks that take part: rank 0 to this one, exclusive."""
        return self.played or self.ranks

    @property
    def has_all_copies(self) -> bool:
        """Return whether all data-parallel replicas of each rank that takes part also take part."""
        together = self.tensor * self.data if self.order == "tp-dp-pp" else self.ranks
        return self.data == 1 or self.present_ranks % together == 0

    @property
    def stage_stride(self) -> int:
        """Distance in ranks between neighbours that differ only in their pipeline stage."""
        return self.tensor * (self.data if self.order == "tp-dp-pp" else 1)

    @property
    def data_stride(self) -> int:
        """Distance in ranks between neighbours that differ only in their data rank."""
        return self.tensor * (1 if self.order == "tp-dp-pp" else self.pipeline)

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """Return the tensor, pipeline and data rank of a rank, or of each of an array of ranks."""
        return (
            rank % self.tensor,
            rank // self.stage_stride % self.pipeline,
            rank // self.data_stride % self.data,
        )

    def rank(self, tensor: int, pipeline: int, data: int) -> int:
        """Return the rank with these coordinates; elementwise for arrays."""
        return tensor + self.stage_stride * pipeline + self.data_stride * data

    def describe(self) -> dict[str, Any]:
        """Return the fields, for JSON; without the order if it is the first one."""
        fields = asdict(self)
        if self.order == "tp-dp-pp":
            del fields["order"]
        return fields

    @property
    def phrase(self) -> str:
        """Text of the split in a pattern, without `subset`."""
        order = "" if self.order == "tp-dp-pp" else f" order {self.order}"
        return f"tensor {self.tensor} pipeline {self.pipeline} data {self.data}{order}"

    @property
    def axes_text(self) -> str:
        """Axes along which the model is split; `data 1` if it is not split."""
        axes = {"tensor": self.tensor, "pipeline": self.pipeline, "data": self.data}
        text = " ".join(f"{axis} {size}" for axis, size in axes.items() if size > 1) or "data 1"
        return text if self.order == "tp-dp-pp" else f"{text} {self.order}"

    def __str__(self) -> str:
        """Return the text that a pattern has for it, and the ranks that take part."""
        return f"{self.phrase}, {self.played} of {self.ranks} ranks" if self.played else self.phrase
