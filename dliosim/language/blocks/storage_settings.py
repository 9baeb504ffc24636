"""Storage settings: shape, format, chunk and compression, and what the format refuses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, Final, Literal, cast

from dliosim.errors import UsageError, install_hint
from dliosim.formats.registry import FORMATS, bind
from dliosim.language.diagnostics import Label, mistake, suggest_word
from dliosim.language.settings.block_settings import Settings, warn_about_draws
from dliosim.language.syntax.parser import SyntaxNode
from dliosim.language.values.evaluator import Scope
from dliosim.language.values.quantities import nearest_float, range_mistake
from dliosim.model import ELEMENTS, Chunk, Columns, Compression, Dataset, Distribution, Shape, constant
from dliosim.readable import count
from dliosim.units import COUNT, format_bytes

MAX_DIMENSIONS: Final = 32  # of arrays in HDF5
MAX_SHAPED: Final = 1 << 53  # bytes; sizes are floats, which are exact up to this one
MAX_PARTS: Final = 1 << 12
MAX_COMPRESSIBLE: Final = 1000  # deflate's own limit is 1032 : 1

#: The setting of the pattern for a field of the model that a format may refuse, if the names differ.
_WRITTEN_AS: Final = {"parts": "datasets", "names": "datasets"}

#: The usual, the lowest and the highest level of each codec; zeros for a codec without levels.
_LEVELS: Final = {"gzip": (4, 1, 9), "lzf": (0, 0, 0), "snappy": (0, 0, 0), "zstd": (3, 1, 22)}


def read_dataset(settings: Settings, **special: Callable[[SyntaxNode], Any] | None) -> dict[str, Any]:
    """Return the fields that the lines of a data set give; `special` are the fields that differ for existing files."""
    readers: dict[str, Callable[[Scope, SyntaxNode], Any]] = {
        "format": _format_name,
        "shape": _shape,
        "chunk": _chunk,
        "compress": _compression,
        "compressible": _compression_ratio,
        "parts": _parts,
        "columns": _columns,
    }
    bound = {field: partial(read, settings.context.scope) for field, read in readers.items()}
    return settings.read_fields(Dataset, **(bound | special))


# ---- sizes --------------------------------------------------------------------------------------------------------


def _shape(scope: Scope, node: SyntaxNode) -> Shape:
    element = require_word("element type", node.children[-1], ELEMENTS)
    if len(node.children) - 1 > MAX_DIMENSIONS:
        text = f"a shape of {len(node.children) - 1} dimensions"
        raise mistake("E113", text, node.span, f"at most {MAX_DIMENSIONS}")
    extents = tuple(scope.count(child) for child in node.children[:-1])
    if prod(extents) * ELEMENTS[element] > MAX_SHAPED:
        raise mistake("E113", "a sample of this shape is too large", node.span, f"at most {format_bytes(MAX_SHAPED)}")
    return Shape(extents, element)


def _parts(scope: Scope, node: SyntaxNode) -> int:
    if node.kind == "number":
        return scope.count(node.only_child, 1, MAX_PARTS)
    message = "names of data sets are for files that are there already"
    hint = f"write how many: `datasets {len(node.children)}`"
    raise mistake("E210", message, node.span, "no meaning without `from files`", hint=hint)


def _columns(scope: Scope, node: SyntaxNode) -> tuple[Columns, ...]:
    found = []
    for one in node.children:
        *numbers, element = one.children
        word = require_word("element type", element, ELEMENTS)
        number, *lengths = (scope.count(child) for child in numbers)
        found.append(Columns(number, word, *lengths))
    if sum(one.number for one in found) > MAX_PARTS:
        raise mistake("E113", "a table of too many columns", node.span, f"at most {MAX_PARTS}")
    if sum(one.number * one.width for one in found) > MAX_SHAPED:
        raise mistake("E113", "a row of these columns is too large", node.span, f"at most {format_bytes(MAX_SHAPED)}")
    return tuple(found)


def _table_size(settings: Settings, fields: Mapping[str, Any]) -> Distribution:
    """Return the size of a row of `columns`; E213 for what else gives it, E212 if the format has no columns."""
    size = sum(one.number * one.width for one in fields.get("columns", ()))
    for head in ("size", "shape", "datasets"):
        if settings.find_line(head) is not None:
            text, place = f"`{settings.block.title}` has `columns` and a `{head}`", (head, "this says it again")
            settings.report("E213", text, f"leave `{head}` out", place, ("columns", f"a row has {format_bytes(size)}"))
    form = fields.get("format", "raw")
    if form != "parquet":
        where = ("format", "the format") if settings.find_line("format") is not None else ("columns", "of a table")
        settings.report("E212", f"format `{form}` has no `columns`", "write `format parquet`", where)
    return constant(float(max(size, 1)))


def sample_size(settings: Settings, fields: Mapping[str, Any]) -> Distribution:
    """Return the size of a sample in bytes, from `shape` or `size` among the fields that are read.

    Reports E213 if both are given, E112 if the size does not divide evenly into parts.
    """
    drawn: Distribution = fields.get("size", constant(1))
    shaped, number = fields.get("shape"), fields.get("parts", 1)
    if settings.find_line("columns") is not None:
        return _table_size(settings, fields)
    check_size_and_shape(settings, shaped, number)
    if settings.find_line("shape") is not None:
        return constant(float(shaped.size * number if shaped is not None else 1))
    warn_about_draws(settings, "size", drawn)
    if number > 1 and not (drawn.is_constant and drawn.parameters[0] % number == 0):
        settings.report(
            "E112",
            f"a sample cannot be divided evenly into {number} data sets",
            "give the shape of each: `shape 128 x 128 of uint8`",
            ("size", "size varies" if not drawn.is_constant else f"no multiple of {number}"),
            ("datasets", "each has the same share of a sample"),
        )
    return drawn


def check_size_and_shape(settings: Settings, shaped: Shape | None, number: int = 1) -> None:
    """Report E213 for `size` together with `shape`."""
    if settings.find_line("size") is None or settings.find_line("shape") is None:
        return
    text = f"the shape gives the size: {format_bytes(shaped.size * number)}" if shaped else "the shape gives the size"
    message = f"`{settings.block.title}` has a `size` and a `shape`"
    settings.report("E213", message, "leave `size` out", ("size", text), ("shape", "the shape"))


# ---- the format ---------------------------------------------------------------------------------------------------


def _format_name(_: Scope, node: SyntaxNode) -> str:
    name = node.only_child.text  # names of other packages are only looked for where it is not a known one
    return name if name in FORMATS else require_word("format", node.only_child, FORMATS.names())


def _chunk(scope: Scope, node: SyntaxNode) -> Chunk | None:
    if node.kind == "off":
        return None
    if node.kind == "samples":
        return Chunk(scope.count(node.only_child), "samples")
    if node.kind == "extents":
        extents = tuple(scope.count(child) for child in node.children)
        return Chunk(prod(extents), "elements", extents)
    value = scope.value(node.only_child)
    if value.dimension == COUNT:
        hint = f"write `chunk {value} samples`, or a size: `chunk 64 KiB`"
        raise mistake("E111", "a chunk is a number of samples, or a size", node.span, "this is a count", hint=hint)
    return Chunk(scope.size(node.only_child, 1), "bytes")


def _compression(scope: Scope, node: SyntaxNode) -> Compression | None:
    if node.kind == "off":
        return None
    word = require_word("codec", node.children[0], (*_LEVELS, "off"))
    codec = cast(Literal["gzip", "lzf", "snappy", "zstd"], word)
    usual, low, high = _LEVELS[codec]
    if len(node.children) == 1:
        return Compression(codec, usual)
    if not high:
        raise mistake("E003", f"`{codec}` has no levels", node.children[1].span, "expected the end of the line")
    return Compression(codec, scope.count(node.children[1], low, high))


def _compression_ratio(scope: Scope, node: SyntaxNode) -> float:
    if node.kind == "off":
        return 1.0
    above, below = (scope.require_dimension(child, COUNT) for child in node.children)
    for value in (above, below):
        if value.amount <= 0:
            raise range_mistake(value, "must be above 0")
    ratio = above.amount / below.amount
    if not 1 <= ratio <= MAX_COMPRESSIBLE:
        message = f"contents compressible {nearest_float(ratio):g} : 1"
        raise mistake("E113", message, node.span, f"1 : 1 to {MAX_COMPRESSIBLE} : 1")
    return float(ratio)


def check_chunk(settings: Settings, built: Dataset) -> None:
    """Report E214 for a chunk of more samples, or more bytes, than any file has."""
    size, fullest = built.constant_size, -(-built.samples // built.layout.files)
    if built.chunk is None or built.chunk.extents or (built.chunk.unit == "bytes" and size is None):
        return
    if built.chunk.unit == "samples":
        most, chunk, held = fullest, count(built.chunk.number, "sample"), count(fullest, "sample")
    else:
        most = fullest * (size or 0)
        chunk, held = format_bytes(built.chunk.number), format_bytes(most)
    if built.chunk.number > most:
        files = {"file per sample": "a file for each sample", "shared file": "one file"}.get(built.layout.kind)
        settings.report(
            "E214",
            f"a chunk of {chunk} in files of {held}",
            f"at most `chunk {held}`",
            ("chunk", "more than any file has"),
            ("layout", files or f"{built.layout.files} files", "a file for each sample (the default)"),
            [Label(settings.setting_span("samples"), f"{built.samples:_} samples")],
        )


def check_format(settings: Settings, built: Dataset) -> None:
    """Report refusals of the format: R403 if it lacks a package, E212 for settings that it cannot hold."""
    try:
        form = bind(built)
        missing, refused = form.needs(), form.refuse()
    except UsageError as error:
        settings.report(error.code or "R403", error.message, "", ("format", "named here"))
        return
    except ImportError as error:
        settings.report("R403", f"format `{built.format}` cannot be loaded", "", ("format", f"{error}"))
        return
    if missing is not None:
        module, extra = missing
        message = f"format `{built.format}` is not available here"
        settings.report("R403", message, install_hint(extra), ("format", f"the package `{module}` is not installed"))
    # Files that exist already are not inspected yet, so only what the block itself says can be wrong.
    setting, reason = refused or ("", "")
    setting = _WRITTEN_AS.get(setting, setting)
    if refused is not None and (not built.source or settings.find_line(setting) is not None):
        labels = settings.labels(setting, reason)
        if setting != "format" and settings.find_line("format") is not None:
            labels += settings.labels("format", "the format")
        message = f"format `{built.format}` does not go with this `{setting}`"
        settings.report("E212", message, _cure_refusal(built, setting), labels)


def _cure_refusal(built: Dataset, setting: str) -> str:
    """Return what to do about a setting that the format of a data set refuses: the formats that take it."""
    fit = [name for name in FORMATS.names() if _takes_all(replace(built, format=name))]
    formats = [f"write `format {name}`" for name in fit[:1]] + [f"`format {name}`" for name in fit[1:3]]
    leave = [f"leave `{setting}` out"] if setting not in ("samples", "size", "shape", "format") else []
    return ", or ".join([*leave, " or ".join(formats)] if formats else leave)


def _takes_all(built: Dataset) -> bool:
    try:
        return bind(built).refuse() is None
    except (ImportError, UsageError):
        return False


def require_word(what: str, node: SyntaxNode, known: Collection[str]) -> str:
    """Return a word that is one of the known ones; E003 for another."""
    if node.text in known:
        return node.text
    listed = f"{what}s: {', '.join(known)}"
    hint, article = suggest_word(node.text.lower(), known) or listed, "an" if what[0] in "aeo" else "a"
    raise mistake("E003", f"unknown {what} `{node.text}`", node.span, f"not {article} {what}", hint=hint)
