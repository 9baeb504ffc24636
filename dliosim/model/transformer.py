"""A transformer's state: its tensors, their sizes, how they are split, and which file each goes to.

Parameters are those of a Llama: 2VH + L(2H + H(H + 2K) + H^2 + 3FH) + H with K = floor(H / heads) x kv heads, which
is exact for the published counts of 8B, 70B, 405B and 1T (MLPerf Storage v2). Tensors are split as Megatron-LM splits
them: query, key, value, gate and up by output rows, the attention's output and down by input columns, embedding and
head by vocabulary; norms are held whole by all tensor-parallel ranks. Files are those of DeepSpeed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from dliosim.model.split import Split

Scope = Literal["total", "per rank", "rows", "columns", "whole"]

#: Tensors of fp32 that an optimizer keeps for each parameter, the master copy first.
OPTIMIZERS: Final = {"adam": ("master", "exp_avg", "exp_avg_sq"), "sgd": ("master", "momentum"), "none": ()}

#: Bytes of an element.
TYPES: Final = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8, "fp8": 1, "int8": 1, "int32": 4, "int64": 8}


@dataclass(frozen=True, slots=True)
class Part:
    """What is saved under one name: `size` bytes in total, or of every rank, and who holds what of it.

    `total` is cut into equal ranges over all ranks, `per rank` is held by each rank for itself. A tensor has rows of
    `row` bytes (0: is one row) of elements of `element` bytes: tensor-parallel ranks hold `rows`, `columns`, or all of
    it (`whole`), on pipeline stage `stage`, and data-parallel ranks hold the same. `file` is what the files are called
    that it goes to where ranks write files of their own; parts of one `file` share it.
    """

    name: str
    size: int
    scope: Scope
    row: int = 0
    element: int = 1
    stage: int = 0
    file: str = ""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.row or self.size

    @property
    def rows(self) -> int:
        """Rows of the tensor; of a `per rank` part, one for each rank: those that a rank holds."""
        return self.size // self.row_bytes if self.size else 0


@dataclass(frozen=True, slots=True)
class Transformer:
    """A model and what of it is saved; `zero` is the stage of ZeRO by which data-parallel ranks divide it.

    With `scale` above 1 every tensor has so many times fewer bytes, in its own proportions: files and shapes stay.
    """

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocabulary: int
    weights: str = "bf16"
    optimizer: str = "adam"
    state: str = "fp32"
    zero: int = 1
    scale: int = 1

    @property
    def kv_width(self) -> int:
        """Width of keys, and of values."""
        return self.hidden // self.heads * self.kv_heads

    @property
    def parameters(self) -> int:
        """Parameters, unscaled."""
        return sum(rows * columns for _, _, rows, columns, _ in _tensors(self))


def stage_of(layer: int, layers: int, stages: int) -> int:
    """The pipeline stage of a layer; what does not divide goes to the stages in the middle.

    The first and the last hold the embedding and the head besides (as Llama 3 405B has it: 126 layers on 32 stages).
    """
    each, more = divmod(layers, stages)
    first = (stages - more) // 2  # the first stage that has one more
    before = first * each
    if layer < before:
        return layer // each
    inside = layer - before
    if inside < more * (each + 1):
        return first + inside // (each + 1)
    return first + more + (inside - more * (each + 1)) // each


def parts_of(model: Transformer, split: Split) -> tuple[Part, ...]:
    """The parts of a model's state, weights first; those of another split are as many, with the same sizes."""
    weights = tuple(_weight_parts(model, split))
    return (*weights, *_optimizer_parts(model, split, weights))


_Tensor = tuple[str, int, int, int, Scope]


def _tensors(model: Transformer) -> Iterator[_Tensor]:
    """Name, layer (-1: before all, `layers` and on: after), rows, columns and how it is split."""
    hidden, ffn, kv, layers = model.hidden, model.ffn, model.kv_width, model.layers
    yield "embedding", -1, model.vocabulary, hidden, "rows"
    for layer in range(layers):
        yield f"{layer}.attention_norm", layer, 1, hidden, "whole"
        yield f"{layer}.query", layer, hidden, hidden, "rows"
        yield f"{layer}.key", layer, kv, hidden, "rows"
        yield f"{layer}.value", layer, kv, hidden, "rows"
        yield f"{layer}.output", layer, hidden, hidden, "columns"
        yield f"{layer}.ffn_norm", layer, 1, hidden, "whole"
        yield f"{layer}.gate", layer, ffn, hidden, "rows"
        yield f"{layer}.up", layer, ffn, hidden, "rows"
        yield f"{layer}.down", layer, hidden, ffn, "columns"
    yield "norm", layers, 1, hidden, "whole"
    yield "head", layers + 1, model.vocabulary, hidden, "rows"


def _weight_parts(model: Transformer, split: Split) -> Iterator[Part]:
    element = TYPES[model.weights]
    for name, layer, rows, columns, scope in _tensors(model):
        stage = _layer_stage(model, layer, split)
        rows, columns = _scale_shape(rows, columns, model.scale)
        file = f"layer_{layer + 1:03d}" if split.pipeline > 1 and model.zero < 3 else "model"
        size = rows * columns * element
        yield Part(name, size, "total" if model.zero == 3 else scope, columns * element, element, stage, file)


def _optimizer_parts(model: Transformer, split: Split, weights: tuple[Part, ...]) -> Iterator[Part]:
    """With ZeRO the state is flat and every rank holds an equal range of it; without, it lies as the weights do."""
    kinds, element, wide = OPTIMIZERS[model.optimizer], TYPES[model.state], TYPES[model.weights]
    if model.zero:
        size = sum(part.size for part in weights) // wide * element
        for kind in kinds:
            yield Part(f"optimizer.{kind}", size, "total", file="optimizer")
        return
    for part in weights:
        for kind in kinds:
            name, size, row = f"{part.name}.{kind}", part.size // wide * element, part.row // wide * element
            yield Part(name, size, part.scope, row, element, part.stage, "optimizer")


def _layer_stage(model: Transformer, layer: int, split: Split) -> int:
    if layer < 0:
        return 0
    return split.pipeline - 1 if layer >= model.layers else stage_of(layer, model.layers, split.pipeline)


def _scale_shape(rows: int, columns: int, scale: int) -> tuple[int, int]:
    """A tensor with about 1/scale of the elements, both of whose dimensions shrink alike; one element at least."""
    if scale == 1:
        return rows, columns
    if rows == 1:
        return 1, max(1, round(columns / scale))
    fewer = max(1, round(rows / math.sqrt(scale)))
    return fewer, max(1, round(rows * columns / scale / fewer))
