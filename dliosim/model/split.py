"""The split of a model over ranks: tensor, data and pipeline parallel, and the number of these ranks that take part."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Split:
    """`tensor` x `pipeline` x `data` ranks in the order of Megatron and DeepSpeed.

    Tensor-parallel ranks are neighbours, then data-parallel ranks, then pipeline stages.
    """

    tensor: int  #: tensor-parallel ranks
    pipeline: int  #: pipeline stages
    data: int  #: data-parallel ranks
    played: int = 0  #: ranks that take part (`subset`), from rank 0; 0: all

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
        return self.data == 1 or self.present_ranks % (self.tensor * self.data) == 0

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """Return the tensor, pipeline and data rank of a rank."""
        rest, tensor = divmod(rank, self.tensor)
        pipeline, data = divmod(rest, self.data)
        return tensor, pipeline, data

    def rank(self, tensor: int, pipeline: int, data: int) -> int:
        """Return the rank with these coordinates."""
        return tensor + self.tensor * (data + self.data * pipeline)

    @property
    def axes_text(self) -> str:
        """Axes along which the model is split; `data 1` where it is not split."""
        axes = {"tensor": self.tensor, "pipeline": self.pipeline, "data": self.data}
        return " ".join(f"{axis} {size}" for axis, size in axes.items() if size > 1) or "data 1"

    def __str__(self) -> str:
        """Return the text that a pattern has for it."""
        text = f"tensor {self.tensor} pipeline {self.pipeline} data {self.data}"
        return f"{text}, {self.played} of {self.ranks} ranks" if self.played else text
