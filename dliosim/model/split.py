"""How a model lies on ranks: tensor, data and pipeline parallel, and how many of those ranks take part."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Split:
    """`tensor` x `pipeline` x `data` ranks; tensor-parallel ranks are neighbours, then data, then pipeline.

    That is the order of Megatron and DeepSpeed. `played` is how many of them there are in fact (`subset`), from rank 0
    on; 0 for all.
    """

    tensor: int
    pipeline: int
    data: int
    played: int = 0

    @property
    def ranks(self) -> int:
        """Ranks that the model is split over."""
        return self.tensor * self.pipeline * self.data

    @property
    def present_ranks(self) -> int:
        """Ranks that take part, 0 to this."""
        return self.played or self.ranks

    @property
    def has_all_copies(self) -> bool:
        """Whether with each rank that takes part all those do that differ from it in their data rank alone."""
        return self.data == 1 or self.present_ranks % (self.tensor * self.data) == 0

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """The tensor, pipeline and data rank of a rank."""
        rest, tensor = divmod(rank, self.tensor)
        pipeline, data = divmod(rest, self.data)
        return tensor, pipeline, data

    def rank(self, tensor: int, pipeline: int, data: int) -> int:
        """The rank at a place."""
        return tensor + self.tensor * (data + self.data * pipeline)

    @property
    def axes_text(self) -> str:
        """The axes along which it splits; `data 1` where it does not."""
        axes = {"tensor": self.tensor, "pipeline": self.pipeline, "data": self.data}
        return " ".join(f"{axis} {size}" for axis, size in axes.items() if size > 1) or "data 1"

    def __str__(self) -> str:
        """As a pattern would say it."""
        text = f"tensor {self.tensor} pipeline {self.pipeline} data {self.data}"
        return f"{text}, {self.played} of {self.ranks} ranks" if self.played else text
