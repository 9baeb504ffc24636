"""The state of a transformer: its tensors, their sizes, how they are split over ranks, and the file of each.

Parameters are those of a Llama: 2VH + L(2H + H(H + 2K) + H^2 + 3FH) + H with K = floor(H / heads) x kv heads. This is
exact for the published numbers of 8B, 70B, 405B and 1T (MLPerf Storage v2). Tensors are split as Megatron-LM splits
them: query, key, value, gate and up by output rows; the attention's output and down by input columns; embedding and
head by vocabulary. Each tensor-parallel rank holds the norms whole. Files are those of DeepSpeed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final, Literal

from dliosim.model.phrase import Phrase

#: Megatron's words for the axis along which neighbours differ (tensor), the next one, and that of the farthest
RankOrder = Literal["tp-dp-pp", "tp-pp-dp"]


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
        return (rank % self.tensor, rank // self.stage_stride % self.pipeline, rank // self.data_stride % self.data)

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


Scope = Literal["total", "per rank", "rows", "columns", "whole"]

#: Tensors that an optimizer keeps for each weight tensor, the master copy first.
OPTIMIZERS: Final = {"adam": ("master", "exp_avg", "exp_avg_sq"), "sgd": ("master", "momentum"), "none": ()}

#: Bytes of an element.
TYPES: Final = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8, "fp8": 1, "int8": 1, "int32": 4, "int64": 8}


@dataclass(frozen=True, slots=True)
class Part:
    """The bytes that a checkpoint saves under one name, and how ranks hold them.

    `total` is cut into equal ranges over all ranks. Each rank holds a `per rank` part for itself. Tensor-parallel ranks
    of pipeline stage `stage` hold `rows`, `columns`, or all of a tensor (`whole`); data-parallel ranks hold replicas.
    """

    name: str  #: name of the part
    size: int  #: bytes in total; of a `per rank` part, bytes of each rank
    scope: Scope  #: how ranks hold it
    row: int = 0  #: bytes of a row; 0: the part is one row
    element: int = 1  #: bytes of an element
    stage: int = 0  #: pipeline stage
    #: label in the names of its files, if ranks write files of their own; parts with the same label share a file
    file: str = ""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.row or self.size

    @property
    def rows(self) -> int:
        """Rows of the tensor; of a `per rank` part, the rows of one rank."""
        return self.size // self.row_bytes if self.size else 0


Width = Annotated[int, Phrase(f"COUNT<={1 << 20}")]


@dataclass(frozen=True, slots=True)
class Transformer:
    """A model and the tensors of it that are saved."""

    name: str  #: name in the pattern
    layers: Annotated[int, Phrase("COUNT<=10_000")]  #: transformer layers, at most 10 000
    hidden: Width  #: width of the hidden state, in elements
    ffn: Annotated[int, Phrase(f"COUNT<={1 << 22}")]  #: width of the feed-forward layer, in elements
    heads: Width  #: attention heads; no more than `hidden`
    kv_heads: Width  #: heads of keys and values. Default: as `heads`
    vocabulary: Annotated[int, Phrase(f"COUNT<={1 << 24}")]  #: tokens; embedding and head are two tensors
    #: element type of the weights: `bf16`, `fp16`, `fp32`, `fp64`, `fp8`, `int8`, `int32`, `int64`
    weights: Annotated[str, Phrase(rule="element")] = "bf16"
    #: state saved in addition for each parameter, and its type: `adam fp32` a master copy and two moments, `sgd fp32` a
    #: master copy and one, `none`. Default: `adam fp32`
    optimizer: Annotated[str, Phrase(rule="optimizer")] = "adam"
    state: str = "fp32"  #: element type of the optimizer's tensors, a key of `TYPES`
    #: stage of ZeRO: from 1 on each data-parallel rank holds an equal range of the optimizer's state, with 3 also of
    #: the weights
    zero: Annotated[int, Phrase("COUNT>=0<=3")] = 1
    #: divides the bytes of every tensor; the numbers of tensors and files stay the same
    scale: Annotated[int, Phrase("COUNT<=1_000_000_000")] = 1

    @property
    def parameters(self) -> int:
        """Number of parameters, unscaled."""
        return sum(rows * columns for _, _, rows, columns, _ in _tensors(self))


def _stage_of(layer: int, layers: int, stages: int) -> int:
    """Return the pipeline stage of a layer; stages in the middle have one layer more if they do not divide evenly.

    The first and the last stage also hold the embedding and the head (as in Llama 3 405B: 126 layers on 32 stages).
    """
    if layer < 0:
        return 0
    if layer >= layers:
        return stages - 1
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
    """Return the parts of a model's state, weights first; another split has the same number of parts and sizes."""
    weights = tuple(_weight_parts(model, split))
    return (*weights, *_optimizer_parts(model, weights))


def _tensors(model: Transformer) -> Iterator[tuple[str, int, int, int, Scope]]:
    """Yield name, layer (-1: before all, `layers` and more: after all), rows, columns and scope of each tensor."""
    hidden, ffn, layers = model.hidden, model.ffn, model.layers
    kv = hidden // model.heads * model.kv_heads  # width of keys, and of values
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
        stage = _stage_of(layer, model.layers, split.pipeline)
        rows, columns = _scale_shape(rows, columns, model.scale)
        file = f"layer_{layer + 1:03d}" if split.pipeline > 1 and model.zero < 3 else "model"
        size = rows * columns * element
        yield Part(name, size, "total" if model.zero == 3 else scope, columns * element, element, stage, file)


def _optimizer_parts(model: Transformer, weights: tuple[Part, ...]) -> Iterator[Part]:
    """Yield the optimizer's parts: with ZeRO flat, an equal range on each rank; without, split like the weights."""
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


def _scale_shape(rows: int, columns: int, scale: int) -> tuple[int, int]:
    """Return a shape with about 1/scale of the elements, both dimensions shrunk by one factor; at least one element."""
    if scale == 1:
        return rows, columns
    if rows == 1:
        return 1, max(1, round(columns / scale))
    fewer = max(1, round(rows / math.sqrt(scale)))
    return fewer, max(1, round(rows * columns / scale / fewer))


#: What else the field calls these settings: `language/suggest/synonyms.py` says how it is read.
OTHER_WORDS: Final = """
layers
    num_layers, n_layers, num_hidden_layers, n_layer
hidden
    hidden_size, d_model, hidden_dim, n_embd, embed_dim
ffn
    ffn_hidden_size, intermediate_size, d_ff, ffn_dim
heads
    num_heads, n_heads, num_attention_heads, n_head
kv_heads
    num_kv_heads, n_kv_heads, num_key_value_heads
vocabulary
    vocab_size, vocab, n_vocab
weights: bf16 | fp16 | fp32
    dtype, precision, torch_dtype
optimizer: adam fp32 | sgd fp32 | none
    optim
zero
    zero_stage
"""
