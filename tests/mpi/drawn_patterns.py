"""Patterns drawn at random: data sets, loops, checkpoints and verbs, small and uneven, of every setting.

Pieces are drawn one by one, and each is shown to the compiler with what was drawn before. One that it refuses, by an
E code, is drawn again: the language says what is allowed, not this module.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from dliosim.language.compile import compile_pattern
from dliosim.language.diagnostics import PatternError
from dliosim.model import Job

#: Ranks of a job, as often as they stand here: large ones take their time where ranks outnumber cores.
RANKS = (1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 4, 5, 6)

FORMATS = (
    "raw",
    "raw",
    "raw",
    "npy",
    "npz",
    "csv",
    "tfrecord",
    "indexed",
    "tar",
    "hdf5",
    "hdf5",
    "jpeg",
    "png",
    "parquet",
)

#: The endings of files that have another than the name of their format.
ENDINGS = {"indexed": "bin"}

WITH_LIBRARY = ("hdf5", "npy", "npz", "parquet")

#: Refusals in a row after which a draw gives up: the generator asks for what cannot be.
_MOST_REFUSED = 60

Lines = dict[str, str]


@dataclass(frozen=True)
class Loop:
    """A loop: what it reads and in which order (`lines`, `more` are those that may be repeated), and how (`access`)."""

    kind: str
    name: str
    data: str
    lines: Lines
    more: tuple[str, ...] = ()
    access: Lines = field(default_factory=dict)
    named: bool = False
    inner: tuple[tuple[int, Loop], ...] = ()

    @property
    def first(self) -> str:
        """The first data set that it reads."""
        return self.data.replace(",", " ").split()[0]

    def text(self, every: int = 0) -> str:
        """The block, and before it that of its access if this has a name."""
        own = {} if self.named else self.access
        lines = [*written(self.lines | own), *self.more]
        blocks = [loop.text(often).replace("\n", "\n    ") for often, loop in self.inner]
        cadence = f" every {every} epochs{' from 1' if every > 1 else ''}" if every else ""
        using = f" with {self.name}_way" if self.named else ""
        body = "\n    ".join([f"read {self.data}{using}", *lines, *blocks])
        return f"{self.kind} {self.name}{cadence} {{\n    {body}\n}}"

    def loops(self) -> Iterable[Loop]:
        """It, and those in it."""
        yield self
        for _, loop in self.inner:
            yield loop

    def nouns(self) -> str:
        """The access methods that it names."""
        return "".join(block(f"access {loop.name}_way", loop.access) for loop in self.loops() if loop.named)


def written(lines: Lines) -> list[str]:
    return [f"{head} {phrase}" for head, phrase in lines.items()]


def block(head: str, lines: Lines, more: Iterable[str] = ()) -> str:
    """A block as text, with its line end; without lines the head alone."""
    body = "".join(f"    {line}\n" for line in [*written(lines), *more])
    return f"{head} {{\n{body}}}\n" if body else f"{head}\n"


class NothingIsRightError(Exception):
    """The parts drawn before leave nothing that the compiler accepts."""


@dataclass
class Drawing:
    """The parts of one pattern drawn so far, for a job of `ranks`, and how often a draw was refused.

    `place` is a file for patterns that are shown to the compiler.
    """

    source: random.Random
    ranks: int
    place: Path
    data: dict[str, Lines] = field(default_factory=dict)
    checkpoints: dict[str, tuple[Lines, tuple[str, ...]]] = field(default_factory=dict)
    models: dict[str, Lines] = field(default_factory=dict)
    tried: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    # ---- drawing --------------------------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return self.source.random() < share

    def one(self, *values: str) -> str:
        return self.source.choice(values)

    def number(self, low: int, high: int) -> int:
        return self.source.randint(low, high)

    def some(self, share: float, head: str, *phrases: str) -> Lines:
        """A line with one of some phrases, or none."""
        return {head: self.one(*phrases)} if self.chance(share) else {}

    # ---- what the compiler says -----------------------------------------------------------------------------------

    def compiles(self, verbs: str) -> bool:
        """Return True if a pattern of the drawn parts and of `verbs` is right; count the reason where it is not."""
        self.tried += 1
        self.place.write_text(self.pattern(verbs))
        try:
            compile_pattern(self.place, [], Job(self.ranks))
        except PatternError as error:
            assert error.exit_code == 2, f"{error}"
            self.refused[error.code] += 1
            return False
        return True

    def until_right(self, draw: Callable[[], bool]) -> None:
        """Draw until it is right."""
        if not any(draw() for _ in range(_MOST_REFUSED)):
            raise NothingIsRightError(
                f"nothing that was drawn is right: {dict(self.refused)}\n{self.place.read_text()}"
            )

    def pattern(self, verbs: str) -> str:
        """The whole text."""
        nouns = [block(f"dataset {name}", lines) for name, lines in self.data.items()]
        nouns += [block(f"model {name} transformer", lines) for name, lines in self.models.items()]
        nouns += [block(f"checkpoint {name}", lines, parts) for name, (lines, parts) in self.checkpoints.items()]
        return f'dlio 1\nworkload drawn "at random"\nseed 5\n{"".join(nouns)}{verbs}'

    # ---- data sets ------------------------------------------------------------------------------------------------

    def add_dataset(self, name: str) -> None:
        def attempt() -> bool:
            self.data[name] = self._dataset(name)
            return self.compiles(f"prepare {name}\n")

        self.until_right(attempt)

    def _dataset(self, name: str) -> Lines:
        form = self.one(*FORMATS)
        samples = self.number(1, 60) if self.chance(0.2) else self.number(12, 60)
        if self.data and self.chance(0.4):  # a loop may read sample i of both
            samples = int(next(iter(self.data.values()))["samples"])
        layout = self.one("shared file", "shared file", "file per rank", "files", "")
        if form in ("jpeg", "png"):
            layout = ""
        lines = {"samples": f"{samples}", "path": f'"{name}"'} | ({"format": form} if form != "raw" else {})
        if layout == "files":
            layout = f"{self.number(1, min(samples, 9))} files"
        if layout:
            lines["layout"] = layout
        if self.chance(0.2) and layout != "shared file":
            lines["layout"] = f"{layout or 'file per sample'} in {self.number(2, 3)} folders"
        if layout == "file per rank":
            lines |= self.some(0.3, "prepared by", f"{self.number(1, min(samples, 7))} ranks")
        if form in ("raw", "tar") or self.chance(0.03):
            lines |= self.some(0.25, "header", "1 B", "100 B", "4 KiB") if form == "raw" else {}
            lines |= self.some(0.25, "align", "7 B", "512 B", "4 KiB") if form == "raw" else {}
        lines |= self.some(0.04, "stripe", "64 KiB over 2 targets")
        parts = self.number(2, 3) if form in ("hdf5", "parquet") and self.chance(0.3) else 1
        if parts > 1:
            lines["datasets"] = f"{parts}"
        lines |= self._size(form, parts, samples)
        if form in ("hdf5", "parquet") and self.chance(0.5):
            many = self.number(1, samples if self.chance(0.4) else 5)
            lines["chunk"] = self.one(f"{many} samples", f"{self.number(1, 900)} B")
        codecs = {"hdf5": ("gzip 1", "gzip", "lzf"), "npz": ("gzip 4",), "parquet": ("gzip 2", "snappy", "zstd 3")}
        if form in codecs:
            lines |= self.some(0.5, "compress", *codecs[form])
        if form not in ("jpeg", "png", "csv"):
            # The last two are masks and labels: a sample has less than a byte of its chunk.
            much = ("50 : 1", "1000 : 1") if "compress" in lines else ()
            lines |= self.some(0.6 if much else 0.2, "compressible", "2 : 1", "5 : 2", *much)
        return lines

    def _size(self, form: str, parts: int, samples: int) -> Lines:
        if form in ("jpeg", "png"):
            return {"size": self.one("900 B", "1500 B", "uniform(900 B, 2500 B)")}
        if form == "csv":
            return {"size": self.one("90 B", "uniform(20 B, 300 B)", "700 B")}
        if form == "indexed":
            return self.one_of({"shape": f"{self.number(2, 90)} of {self.one('uint16', 'int32')}"}, {"size": "130 B"})
        if self.chance(0.35) and form != "tar":
            extents = " x ".join(f"{self.number(1, 9)}" for _ in range(self.number(1, 4)))
            return {"shape": f"{extents} of {self.one('uint8', 'int16', 'float32', 'float64', 'int64')}"}
        varying = ("uniform(200 B, 900 B)", "normal(500 B, 200 B) clipped to 1 B and 900 B", "gamma(300 B, 200 B)")
        varying += ("lognormal(300 B, 150 B)", "exponential(400 B) clipped to 1 B and 2 kB", "uniform(1 B, 4 kB)")
        may_vary = form in ("raw", "tar", "tfrecord") and self.chance(0.5)
        constant = self.one("400 B", "1 B", "1500 B", "4 KiB", "8 KiB", f"{self.number(1, 3000)} B")
        if may_vary:
            return {"size": self.one(*varying)} | self.some(0.3, "sizes", "by file", "by sample")
        return {"size": f"{self.number(1, 700) * parts} B" if parts > 1 else constant}

    def one_of(self, *values: Lines) -> Lines:
        return self.source.choice(values)

    # ---- how bytes are moved --------------------------------------------------------------------------------------

    def writing(self, shared: bool) -> Lines:
        """Access of what is written."""
        apis = ("posix", "posix", "mpi-independent") + (("mpi-collective", "mpi-collective") if shared else ())
        lines = self.some(0.6, "api", *apis)
        lines |= self.some(0.3, "transfer", "1000 B", "4 KiB", "300 B", "1 MiB")
        if lines.get("api", "posix") != "posix":
            return lines | self._hints()
        if self.chance(0.2):
            lines |= {"cache": "off"} | ({"transfer": "8 KiB"} if "transfer" in lines else {})
        return lines

    def _hints(self) -> Lines:
        lines = self.some(
            0.25, "hints", "library", "two-phase", "two-phase 2 aggregators buffer 64 KiB", "no-aggregation"
        )
        if self.chance(0.15):
            lines[f'hint "{self.one("romio_ds_read", "romio_cb_read", "romio_cb_write")}" ='] = '"enable"'
        return lines

    def access(self, data: Lines, loop: Loop) -> Lines:
        """Draw the access method of a loop."""
        shared, form = data.get("layout") in ("shared file", "1 files"), data.get("format", "raw")
        asks = "requests" in loop.lines
        if form in WITH_LIBRARY and self.chance(0.3):
            lines = {"through": "library"}
            if form == "hdf5" and self.chance(0.05):
                lines["api"] = "posix"
            lines |= self.some(0.4, "open", "once", "each epoch", "each sample")
            return lines | self._readers(asks, ("by batch", "by batch in turn"))
        api = self.one("posix", "posix", "posix", "mpi-independent", *(["mpi-collective"] * 3 if shared else []))
        lines = {"api": api} if api != "posix" or self.chance(0.3) else {}
        lines |= self.some(0.1, "through", "direct")
        lines |= self.some(0.3, "transfer", "whole sample", "100 B", "700 B", "1000 B", "4 KiB", "1 MiB")
        lines |= self.some(0.4, "open", "once", "each epoch", *([] if api == "mpi-collective" else ["each sample"]))
        if api != "mpi-collective":
            lines |= self.some(0.3, "order", "as planned", "by offset")
        if api == "posix" and self.chance(0.2) and (form != "raw" or data.get("align") == "4 KiB"):
            lines |= {"cache": "off"} | ({"transfer": self.one("4 KiB", "64 KiB")} if "transfer" in lines else {})
        elif self.chance(0.2) and "datasets" not in data and "compress" not in data and form != "parquet":
            lines["cache"] = f"memory {self.one('3 kB', '9 kB', '1 MB')}"
        if api == "posix" and "transfer" not in lines and lines.get("cache") != "off":
            lines |= self.some(0.3, "engine", "mmap", "preadv", "pread")
        if api != "mpi-collective" and "engine" not in lines:
            lines |= self.some(0.3, "engine", "queued", f"queued depth {self.number(1, 9)}")
        if api != "posix":
            lines |= self._hints()
            lines |= self.some(0.3, "communicator", "world", "node", f"{self.number(1, 4)} ranks", "1 ranks")
        if api != "mpi-collective" and not asks and self.chance(0.2):
            return lines | {"scatter": "by node"}
        ways = ("by batch", "by batch in turn", "by sample") if api != "mpi-collective" else ("by batch",)
        return lines | self._readers(asks, ways, api == "posix")

    def _readers(self, asks: bool, ways: tuple[str, ...], posix: bool = True) -> Lines:
        if asks or not self.chance(0.5):
            return {}
        number = self.number(0, 3)
        kind = " processes" if number and posix and self.chance(0.3) else ""
        lines = {"readers": f"{number}{kind} {self.one('', *ways)}".strip()} if self.chance(0.85) else {}
        return lines | self.some(0.4 if number else 0.1, "prefetch", "1 batches", "2 batches", "3 batches", "7 batches")

    def other_access(self, loop: Loop) -> Loop:
        """The same loop, and those in it, each with another access."""
        inner = tuple((every, self.other_access(each)) for every, each in loop.inner)

        def drawn(change: Callable[[], Loop]) -> Loop:
            made = [loop]

            def attempt() -> bool:
                made[0] = change()
                return self.compiles(made[0].nouns() + alone(made[0]))

            self.until_right(attempt)
            return made[0]

        outer = drawn(lambda: replace(loop, access=self.access(self.data[loop.first], loop), inner=()))
        return replace(outer, inner=inner)

    # ---- loops ----------------------------------------------------------------------------------------------------

    def add_loop(self, kind: str, name: str, saves: Iterable[str] = ()) -> Loop:
        """A loop over one of the data sets, which may save checkpoints and have others in it."""
        made: list[Loop] = []
        sources = self._sources(self.source.choice(list(self.data)))

        def attempt() -> bool:
            made[:] = [self._loop(kind, name, saves, sources)]
            return self.compiles(made[0].nouns() + alone(made[0]))

        self.until_right(attempt)
        loop = made[0]
        if kind == "train" and self.chance(0.3):
            evaluation = self.add_loop("evaluate", f"{name}_test")
            epochs = int(loop.lines.get("epochs", "1"))
            loop = replace(loop, inner=((self.number(1, max(1, epochs)), evaluation),))
        return loop

    def _loop(self, kind: str, name: str, saves: Iterable[str], sources: str) -> Loop:
        data = sources.replace(",", " ").split()[0]
        samples = int(self.data[data]["samples"])
        most = max(1, samples // self.ranks)
        batch = self.number(1, min(9, most + 1))
        spread = self.data[data].get("layout", "file per sample") not in ("shared file", "1 files")
        given = self.chance(0.9)
        lines = {"batch": self.one(f"{batch} per rank", f"{batch * self.ranks} total")} if given else {}
        lines |= self.some(0.6, "shard", "by sample", "by block", "by block", "off", *(["by file"] * spread))
        asks = kind == "infer" and self.chance(0.6)
        longest = 30 if self.ranks == 1 else 9 if self.ranks == 2 else 4
        if asks:
            every = self.one("1 ms", "exponential(1 ms)", "uniform(0 s, 2 ms)")
            lines["requests"] = f"{self.number(1, longest)} per rank every {every}"
        else:
            lines["epochs"] = f"{self.number(1, 3 if self.ranks < 3 else 2)}"
            share = samples if lines.get("shard") == "off" else most
            if share > longest * (batch if given else 1) or self.chance(0.3):
                lines["steps"] = f"{self.number(1, longest)}"
        lines |= self.some(0.06, "for", "20 ms", "10 min")
        lines |= self.some(0.7, "last batch", "drop", "pad", "keep", "keep")
        lines |= self.some(0.15, "shifted by", f"{self.number(0, 7)} ranks")
        lines |= self.some(
            0.2, "compute", "1 ms", "exponential(500 us)", "normal(1 ms, 1 ms) clipped to 0 s and 2 ms busy"
        )
        lines |= self.some(0.2, "decode", "on", "on", "off")
        lines |= self.some(0.1, "preprocess", "100 us", "uniform(0 s, 100 us) busy")
        lines |= self.some(
            0.3, "sync", "off", "barrier", "barrier every 2 steps", "allreduce 4 kB", "allreduce 1 kB every 2 steps"
        )
        loop = Loop(kind, name, sources, lines, (*self.shuffles(), *self._cadences(saves)))
        return replace(loop, access=self.access(self.data[data], loop), named=self.chance(0.15))

    def _sources(self, data: str) -> str:
        """The data set, or others next to it: a sample of each, or a mixture."""
        others = [name for name in self.data if name != data]
        if not others or not self.chance(0.3):
            return data
        other = self.one(*others)
        if self.data[other]["samples"] == self.data[data]["samples"] and self.chance(0.6):
            return f"{data}, {other}"
        share = self.number(1, 9) * 10
        large = all(int(self.data[name]["samples"]) > 9 for name in (data, other))
        until = self.one("", ", until first ends", ", until all end") if large else ", until all end"
        return f"{data} {share} %, {other} {100 - share} %{until}"

    def shuffles(self) -> list[str]:
        def when() -> str:
            return self.one("", " each epoch", " once")

        lines = []
        if self.chance(0.6):
            scope = self.one("globally", "globally", "within shard", f"within buffer of {self.number(1, 30)} samples")
            lines.append(f"shuffle samples {scope}{when()}")
        if self.chance(0.25):
            lines.append(f"shuffle files{self.one('', ' globally', ' within shard')}{when()}")
        return lines

    def _cadences(self, saves: Iterable[str]) -> list[str]:
        by_epoch = ("every epoch", "every 1 epochs", "every 2 epochs from 1")
        every = ("every 2 steps", "every 2 steps from 1", *by_epoch, "every 5 ms", "at end", "every steps")
        return [f"checkpoint {name} {self.one(*every)}" for name in saves if self.chance(0.6)]


def alone(loop: Loop) -> str:
    """A loop as a verb by itself: an evaluation in one that trains."""
    if loop.kind != "evaluate":
        return f"{loop.text()}\n"
    around = Loop("train", "around", loop.data, {"last batch": "keep"}, inner=((1, loop),))
    return f"{around.text()}\n"
