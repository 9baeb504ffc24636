"""The tensors of a small transformer and of its AdamW, and how two tensor-parallel ranks split them.

Shapes are those of PyTorch's weights, (output, input); what is split how is that of its tensor-parallel plans: by rows
where the outputs are dealt out, by columns where the inputs are, and norms and counts of steps are held by all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

LAYERS: Final = 2

#: Bytes before and after a tensor in a file of torch.distributed.checkpoint (PyTorch 2.13).
HEAD: Final = 704
TAIL: Final = 873

#: No size is a power of two, where 4 KiB less are a size of another order.
_HIDDEN: Final = 320
_KV: Final = 160
_FFN: Final = 896
_VOCABULARY: Final = 5000


class Tensor(NamedTuple):
    """Elements of fp32, in rows and columns; one of a single row is split by nothing."""

    name: str
    rows: int
    columns: int
    split: Literal["rows", "columns", "whole"]


def tensors() -> Iterator[Tensor]:
    """Yield the weights, then for each of them the state of AdamW: the number of steps, and two moments."""
    weights = list(_weights())
    yield from weights
    for weight in weights:
        yield Tensor(f"{weight.name}_step", 1, 1, "whole")
        yield weight._replace(name=f"{weight.name}_exp_avg")
        yield weight._replace(name=f"{weight.name}_exp_avg_sq")


def split_parts() -> str:
    """Return the same as lines of a pattern."""
    return _lines(_part(each) for each in tensors())


def whole_parts() -> str:
    """Return the same, all of it held by every rank."""
    return _lines(_part(each._replace(split="whole")) for each in tensors())


def container_parts() -> str:
    """Return the same, split, with the bytes of torch.distributed.checkpoint's zip container around each tensor.

    A small tensor goes to its file in one call with what is around it.
    """
    lines = []
    for each in tensors():
        if each.split == "whole":
            lines.append(f"part {each.name} {HEAD + 4 * each.columns + TAIL} of int8 whole")
        else:
            lines += [
                f"part {each.name}_head {HEAD} B per rank",
                _part(each),
                f"part {each.name}_tail {TAIL} B per rank",
            ]
    return _lines(lines)


def _part(tensor: Tensor) -> str:
    name, rows, columns, split = tensor
    shape = f"{rows} x {columns}" if rows > 1 else f"{columns}"
    return f"part {name} {shape} of fp32 {'whole' if split == 'whole' else f'split by {split}'}"


def _lines(parts: Iterable[str]) -> str:
    return "\n".join(f"    {part}" for part in parts)


def _weights() -> Iterator[Tensor]:
    yield Tensor("embedding", _VOCABULARY, _HIDDEN, "rows")
    for layer in range(LAYERS):
        yield Tensor(f"l{layer}_attention_norm", 1, _HIDDEN, "whole")
        yield Tensor(f"l{layer}_query", _HIDDEN, _HIDDEN, "rows")
        yield Tensor(f"l{layer}_key", _KV, _HIDDEN, "rows")
        yield Tensor(f"l{layer}_value", _KV, _HIDDEN, "rows")
        yield Tensor(f"l{layer}_output", _HIDDEN, _HIDDEN, "columns")
        yield Tensor(f"l{layer}_ffn_norm", 1, _HIDDEN, "whole")
        yield Tensor(f"l{layer}_gate", _FFN, _HIDDEN, "rows")
        yield Tensor(f"l{layer}_up", _FFN, _HIDDEN, "rows")
        yield Tensor(f"l{layer}_down", _HIDDEN, _FFN, "columns")
    yield Tensor("norm", 1, _HIDDEN, "whole")
    yield Tensor("head", _VOCABULARY, _HIDDEN, "rows")
