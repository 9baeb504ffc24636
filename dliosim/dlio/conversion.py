"""The subject of an import: the file, the version of DLIO, and whether the file's text or DLIO's behaviour counts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import erfc, exp, pi, sqrt
from os.path import normpath
from typing import Final, TypeAlias

from dliosim.dlio.config import Config, Value
from dliosim.dlio.known_keys import Version
from dliosim.errors import UsageError
from dliosim.readable import count, seconds
from dliosim.units import format_seconds

#: Bytes that are worth a word before they are written.
MUCH: Final = 10**9

#: Standard deviations that a normal time may be above its mean: no draw of a run is.
_FAR: Final = 9
#: Share of a mean time by which an import may differ from DLIO without a word.
_VISIBLE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Conversion:
    """A file on its way to a pattern."""

    #: values of the file
    config: Config
    #: version of DLIO
    version: Version
    #: True: what that version does; False: what the file asks for
    as_run: bool
    #: True: read files that DLIO has written; False: write files like them
    from_files: bool
    #: what is only approximately so, in sentences
    approximations: list[str] = field(default_factory=list)
    #: what the user has to know or to do before a run, in sentences
    notes: list[str] = field(default_factory=list)

    def names(self, first: str, second: str) -> tuple[str, ...]:
        """Return the names of a key that count, in both generations, the name of this version first.

        DLIO itself ignores the name of the other generation; with `as_run` so does the import, and reports it.
        """
        own, other = (first, second) if self.version.is_first_generation else (second, first)
        if not self.as_run:
            return own, other
        if self.config.has(other):
            quoted = self.config.quote(other)
            self.approximations.append(f"{quoted}: {self.version.name} does not read it: `{own}` was wanted")
        return (own,)


def split_folder(folder: str) -> tuple[str, str]:
    """Return the `--dir` for a folder, and the path below it: the last two parts of an absolute path."""
    parts = normpath(folder or ".").strip("/").split("/")
    cut = max(len(parts) - 2, 0) if folder.startswith("/") else parts.count("..")
    above, below = parts[:cut], [part for part in parts[cut:] if part != "."]
    if any(re.search(r"[\"\\\0-\x1f*?\[\]{}$]", part) for part in below):
        raise UsageError(f"{folder!r}: not a folder that a pattern can name")
    return ("/" if folder.startswith("/") else "") + "/".join(above) or ".", "/".join(below)


def name_place(task: Conversion, key: str, default: str, inside: str = "") -> str:
    """Return the folder of a key, or one inside it, as a path below `--dir`; report the part that is not below."""
    folder = task.config.text(key, default=default)
    above, below = split_folder(f"{folder}/{inside}")
    if above != ".":
        text = f"{key}={folder}: here `{below}` below --dir (./dliosim-data)"
        task.notes.append(f"{text}; with `--dir {above}` where this file has it")
    return below


def epochs_phrase(task: Conversion, what: str, after: str, between: str) -> str:
    """Return `every 2 epochs from 5`, from the keys of the first epoch and of the interval; empty for never."""
    epochs = task.config.integer("train.epochs", default=1, least=1)
    first, every = (task.config.integer(key, default=1, least=1) for key in (after, between))
    if first > epochs:
        task.approximations.append(f"the first {what} would come after epoch {first}, and there are {epochs}: none")
        return ""
    return f"every {count(every, 'epoch')}{f' from {first}' if first != every else ''}"


def time_phrase(task: Conversion, key: str) -> str:
    """Return a time, or a distribution of times, from a key and its `_stdev`; empty for none."""
    given = task.config.value(key)
    shape = given if isinstance(given, dict) else {"mean": given, "stdev": task.config.value(f"{key}_stdev")}
    kind = str(shape.get("type", "normal"))
    numbers = {name: _seconds(key, shape.get(name)) for name in _PARAMETERS.get(kind, ())}
    if kind in _SCALED and 0 in numbers.values():
        return ""
    if kind == "normal":
        return _normal(task, key, numbers["mean"], numbers["stdev"])
    if kind == "uniform":
        return f"uniform({format_seconds(numbers['min'])}, {format_seconds(numbers['max'])})"
    if kind == "gamma":
        mean = numbers["shape"] * numbers["scale"]
        return f"gamma({format_seconds(mean)}, {format_seconds(numbers['shape'] ** 0.5 * numbers['scale'])})"
    if kind in ("exponential", "poisson"):  # of poisson whole seconds, as numpy draws them
        return f"{kind}({format_seconds(numbers[_PARAMETERS[kind][0]])})"
    task.approximations.append(f"{key}: type {kind}: DLIO sleeps 0 s for that, and so does this")
    return ""


_PARAMETERS: Final = {
    "normal": ("mean", "stdev"),
    "uniform": ("min", "max"),
    "gamma": ("shape", "scale"),
    "exponential": ("scale",),
    "poisson": ("lam",),
}

#: Those whose draws are all 0 if a parameter is 0.
_SCALED: Final = ("gamma", "exponential", "poisson")


def _seconds(key: str, value: Value) -> float:
    found = Config(key, {key: value}).number(key) if value is not None else 0.0
    if not 0 <= found < 1e6:
        raise UsageError(f"{key}: {value}: expected seconds")
    return found


def _normal(task: Conversion, key: str, mean: float, stdev: float) -> str:
    """Return normal times, which are 0 if a draw is below 0; say how far DLIO is from that, if it is."""
    if not stdev:
        return format_seconds(mean) if mean else ""
    ratio = mean / stdev
    below = stdev * (exp(-ratio * ratio / 2) / sqrt(2 * pi) - ratio * erfc(ratio / sqrt(2)) / 2)  # mean of what is cut
    if below > _VISIBLE * mean:
        theirs, ours = seconds(mean + 2 * below, 3), seconds(mean + below, 3)
        text = f"DLIO takes draws below 0 as positive, and sleeps {theirs} on average; here they are 0, so {ours}"
        task.approximations.append(f"{key}: {text}")
    return (
        f"normal({format_seconds(mean)}, {format_seconds(stdev)}) clipped to 0 s and "
        f"{format_seconds(round(mean + _FAR * stdev, 9))}"
    )


#: Columns from which a comment begins, if the line is shorter.
_COMMENT = 44


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a pattern."""

    #: what it says
    text: str
    #: the keys that it came from, or why it is there; empty for none
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a pattern: its head, and lines and blocks inside."""

    #: head, without the brace
    head: str
    #: lines and blocks inside
    lines: tuple[Statement, ...]


Statement: TypeAlias = "Line | Block"


def setting(keyword: str, phrase: str, comment: str = "") -> Line:
    """Return the line of a setting, its phrase aligned with those of others."""
    return Line(f"{keyword:<11} {phrase}", comment)


def block(head: str, lines: Iterable[Statement]) -> Block:
    """Return a block of these lines."""
    return Block(head, tuple(lines))


def write_lines(statements: Sequence[Statement], indent: str = "") -> str:
    """Return the text of statements; comments stand in one column where lines are short."""
    parts: list[str] = []
    for one in statements:
        if isinstance(one, Block):
            parts.append(f"{indent}{one.head} {{\n{write_lines(one.lines, f'{indent}    ')}{indent}}}\n")
        elif one.comment:
            parts.append(f"{indent + one.text:<{_COMMENT}}  # {one.comment}\n")
        else:
            parts.append(f"{indent}{one.text}\n")
    return "".join(parts)
