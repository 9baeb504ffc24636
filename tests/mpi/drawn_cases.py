"""Cases drawn at random, each by its seed alone: runs of patterns in one place, one after the other."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.mpi.drawn_checkpoints import add_checkpoint, restore
from tests.mpi.drawn_patterns import ENDINGS, RANKS, Drawing, Lines, Loop, NothingIsRightError, block

Verb = str | Loop
Name = Literal["first", "again", "others", "found"]

#: The most draws for one run: one whose verbs do not go together is drawn again.
_MOST_ATTEMPTS = 9
_MOST_TRIES = 40


@dataclass(frozen=True)
class Run:
    """One run of a case: the pattern, the ranks, and the options besides places.

    `first` prepares the data; `again` reads the same ones in other ways; `others` are other ranks, which read them and
    restore what was saved; `found` reads files as if somebody else had written them. `same_data` is whether loops have
    the order of those of the first run.
    """

    name: Name
    ranks: int
    text: str
    options: tuple[str, ...]
    same_data: bool = False


@dataclass(frozen=True)
class Case:
    """Runs in their order; how often something was drawn for them, and what was refused of it, by code.

    `plainly` is whether each run is a job of its own, by its command line.
    """

    seed: int
    runs: tuple[Run, ...]
    plainly: bool
    tried: int
    refused: Counter[str]

    def features(self) -> Counter[str]:
        """The lines of all runs, with N for numbers: what was covered."""
        found = Counter(f"{run.ranks} ranks" for run in self.runs)
        for run in self.runs:
            lines = (line.strip(" {") for line in run.text.splitlines()[3:])
            found.update(re.sub(r"\b\d[\d_.]*", "N", re.sub(r"\b([cde])\d\w*", r"\1", line)) for line in lines)
            found.update(option for option in run.options)
        del found["}"], found[""]
        return found


def draw_case(seed: int, place: Path, plainly: float = 0.0) -> Case:
    """The case of a seed; patterns that are shown to the compiler go into `place`.

    Where nouns were drawn that no verbs go with, others are.
    """
    for attempt in range(_MOST_ATTEMPTS):
        try:
            return _drawn(seed, random.Random(f"{seed} {attempt}"), place, plainly)
        except NothingIsRightError:
            continue
    raise NothingIsRightError(f"nothing that seed {seed} draws is right")


def _drawn(seed: int, source: random.Random, place: Path, plainly: float) -> Case:
    as_command = source.random() < plainly
    drawing = Drawing(source, source.choice(RANKS), place)
    for number in range(drawing.number(1, 2)):
        drawing.add_dataset(f"d{number}")
    for number in range(source.choice([0, 0, 1, 1, 1, 2])):
        add_checkpoint(drawing, f"c{number}")
    verbs: list[Verb] = []

    def attempt() -> list[Verb]:
        verbs[:] = _verbs(drawing)
        return verbs

    runs = [Run("first", drawing.ranks, _whole(drawing, attempt), _options(drawing))]
    if drawing.chance(0.7):
        text = _whole(drawing, lambda: _again(drawing, verbs))
        runs.append(Run("again", drawing.ranks, text, ("--verify",), same_data=True))
    # Of files per rank there must be as many as they have folders.
    layouts = " ".join(lines.get("layout", "") for lines in drawing.data.values())
    least = max((int(folders) for folders in re.findall(r"file per rank in (\d+) folders", layouts)), default=1)
    ranks = source.choice([each for each in RANKS if each >= least])
    others = Drawing(source, ranks, place, data=dict(drawing.data))
    restores = _restored(drawing, others, verbs)
    if drawing.chance(0.5):
        text = _whole(others, lambda: [*_prepares(others, again=True), *_loops(others), *restores])
        runs.append(Run("others", others.ranks, text, ("--verify",)))
    found = Drawing(source, source.choice(RANKS), place)
    if drawing.chance(0.4) and (existing := _existing(drawing)):
        runs.append(Run("found", found.ranks, _of_existing(found, existing), ()))
    drawn = (drawing, others, found)
    refused = sum((each.refused for each in drawn), Counter[str]())
    return Case(seed, tuple(runs), as_command, sum(each.tried for each in drawn), refused)


def _whole(drawing: Drawing, attempt: Callable[[], Sequence[Verb]]) -> str:
    """The pattern of verbs that go together."""
    for _ in range(_MOST_TRIES):
        verbs = attempt()
        nouns = "".join(verb.nouns() for verb in verbs if isinstance(verb, Loop))
        if drawing.compiles(nouns + _text(verbs)):
            return drawing.pattern(nouns + _text(verbs))
    raise NothingIsRightError(f"verbs never go together: {drawing.refused}\n{drawing.pattern(_text(verbs))}")


def _text(verbs: Iterable[Verb]) -> str:
    return "".join(f"{verb.text()}\n" if isinstance(verb, Loop) else verb for verb in verbs)


def _options(drawing: Drawing) -> tuple[str, ...]:
    more = drawing.one("", "", "", "", "", "", "--with-null", "--mtbf")
    return ("--verify", *(["--mtbf", "4 h"] if more == "--mtbf" else [more] if more else []))


def _prepares(drawing: Drawing, again: bool = False) -> list[str]:
    made = []
    for name, lines in drawing.data.items():

        def attempt(name: str = name, lines: Lines = lines) -> bool:
            afresh = " afresh" if not again and drawing.chance(0.1) else ""
            shared = lines.get("layout") in ("shared file", "1 files")
            own = drawing.writing(shared) | drawing.some(0.2, "fsync", "on", "off")
            # Data that were not synced count on until the node boots again.
            made.append(block(f"prepare {name}{afresh}", own))
            right = drawing.compiles(made[-1])
            if not right:
                made.pop()
            return right

        drawing.until_right(attempt)
    return made


def _loops(drawing: Drawing, saves: Iterable[str] = ()) -> list[Loop]:
    kinds = [drawing.one("train", "train", "train", "infer") for _ in range(drawing.number(1, 2))]
    return [drawing.add_loop(kind, f"e{number}", saves if kind == "train" else ()) for number, kind in enumerate(kinds)]


def _verbs(drawing: Drawing) -> list[Verb]:
    """Prepare all; then loops, saves, restores and the like, in any order in which what is restored was saved."""
    verbs: list[Verb] = list(_loops(drawing, tuple(drawing.checkpoints)))
    for name in drawing.checkpoints:
        saved = f"save {name}\n"
        if drawing.chance(0.3):
            saved = f"repeat {drawing.number(1, 3)} {{\n    save {name}\n    pause exponential(1 ms)\n}}\n"
        place = drawing.number(0, len(verbs))
        verbs.insert(place, saved)
        if drawing.chance(0.7):
            verbs.insert(drawing.number(place + 1, len(verbs)), restore(drawing, name))
    for small in ("pause 1 ms\n", "barrier\n", "drop caches\n"):
        if drawing.chance(0.15):
            verbs.insert(drawing.number(0, len(verbs)), small)
    for name in drawing.data:
        if drawing.chance(0.3):
            own = drawing.some(0.5, "copy", "in the background", "off") | drawing.some(0.3, "fsync", "off")
            own |= drawing.some(0.2, "holds", "own share")
            verbs.insert(drawing.number(0, len(verbs)), block(f"stage {name} to local", own))
    if drawing.chance(0.1):
        body = _text(verbs[:2]).rstrip("\n").replace("\n", "\n    ")
        nouns = "".join(verb.nouns() for verb in verbs[:2] if isinstance(verb, Loop))
        verbs[:2] = [f"{nouns}repeat 2 {{\n    {body}\n}}\n"]
    if drawing.chance(0.2):
        names = [verb.name for verb in verbs if isinstance(verb, Loop)]
        bound = drawing.one(
            "throughput of {} at least 1 B/s", "p99 of {} at most 10 h", "throughput of {} at most 1 PB/s"
        )
        verbs += [f"expect {bound.format(name)}\n" for name in names[:1]]
    return [*_prepares(drawing), *verbs]


def _again(drawing: Drawing, verbs: Sequence[Verb]) -> list[Verb]:
    """The same loops in other ways, over data that are there."""
    rest = [verb for verb in verbs if isinstance(verb, Loop) or not verb.startswith("prepare")]
    return [
        *_prepares(drawing, again=True),
        *(drawing.other_access(verb) if isinstance(verb, Loop) else verb for verb in rest),
    ]


def _restored(drawing: Drawing, others: Drawing, verbs: Sequence[Verb]) -> list[str]:
    """Restores, by other ranks, of what was saved."""
    restores = []
    for name, (lines, parts) in drawing.checkpoints.items():
        usual = lines.get("parallel", f"data {drawing.ranks}")
        writers = lines.get("writers", "")
        outside = writers.startswith("rank") and int(writers.split()[1]) >= others.ranks
        # How many ranks a node had decides these files, and `written by` cannot say it.
        by_node = "per node" in (writers[-8:], lines.get("folder")) and others.ranks != drawing.ranks
        aggregators = re.search(r"(\d+) aggregators", lines.get("hints", ""))
        outside |= aggregators is not None and int(aggregators[1]) > others.ranks
        if "subset" in usual or "partner" in lines or outside or by_node or others.chance(0.2):
            continue
        own = {head: phrase for head, phrase in lines.items() if head != "parallel"}
        stages = re.search(r"pipeline (\d+)", usual)
        if stages and int(stages[1]) > 1:
            continue  # its parts are on stages, which the split of the others must have
        others.checkpoints[name] = (own, parts)
        if "model" in own:
            others.models[own["model"]] = drawing.models[own["model"]]
        restores.append(restore(others, name, usual))
    return restores


def _existing(drawing: Drawing) -> dict[str, Lines]:
    """Data sets that are the files of others, by the names of those."""
    made = {}
    for name, lines in drawing.data.items():
        form = lines.get("format", "raw")
        deep = "**/" if "folders" in lines.get("layout", "") else ""
        found = {"from files": f'"{name}/*/{deep}*.{ENDINGS.get(form, form)}"'}
        alone = lines.get("layout", "file per sample").startswith("file per sample")
        if form in ("npy", "indexed") and "shape" in lines and not alone:
            found["shape"] = lines["shape"]
        made[f"{name}_found"] = found
    return made


def _of_existing(drawing: Drawing, existing: dict[str, Lines]) -> str:
    """A pattern that goes through files by each of some ways; not compiled, since they are not there yet."""
    drawing.data = existing
    verbs = []
    for number, name in enumerate(existing):
        lines = {"batch": f"{drawing.number(1, 5)} per rank", "last batch": "keep"}
        lines |= drawing.some(0.4, "decode", "on") if "parquet" not in existing[name]["from files"] else {}
        lines |= drawing.some(0.5, "shard", "by sample", "by block", "off")
        lines |= {"steps": f"{drawing.number(1, 4)}"} if drawing.ranks > 2 else {}
        loop = Loop("train", f"e{number}", name, lines, tuple(drawing.shuffles()))
        api = drawing.one("posix", "mpi-independent")
        access = {"api": api} | drawing.some(0.4, "open", "once", "each epoch", "each sample")
        access |= drawing.some(0.4, "transfer", "700 B", "4 KiB") | drawing.some(
            0.3, "readers", "1", "2", "2 by sample"
        )
        access |= drawing.some(
            0.2, "engine", "queued", *(["mmap"] if api == "posix" and "transfer" not in access else [])
        )
        if "decode" in lines and "transfer" in access:
            access.pop("readers", None)
        verbs.append(Loop(loop.kind, loop.name, name, lines, loop.more, access))
    return drawing.pattern(_text(verbs))
