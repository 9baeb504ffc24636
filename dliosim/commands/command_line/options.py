"""Options of the command line, for the commands that share them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from dliosim import PATTERNS
from dliosim.dlio import OVERRIDE_MARKS
from dliosim.errors import HELP, UsageError
from dliosim.model import Dataset, StorageModel, Workload


def parse_overrides(parsed: SimpleNamespace) -> list[tuple[str, str]]:
    """Return the -D options as (name, phrase), in order; UsageError for one without `=`."""
    pairs = []
    for text in parsed.define:
        name, equals, phrase = text.partition("=")
        if not equals or not name.strip():
            mended = re.fullmatch(r"\s*([\w. ]*\w)\s*[:\s]\s*(\S.*)", text)
            hint = f"write `-D {mended[1]}={mended[2]}`" if mended else "as `-D batch=4` or `-D train.readers=0`"
            raise UsageError(f"-D {text}: expected NAME=VALUE or BLOCK.SETTING=PHRASE: {hint}")
        pairs.append((name.strip(), phrase.strip()))
    return pairs


def parse_values(parsed: SimpleNamespace) -> list[tuple[str, str]]:
    """Return what the command line says about a pattern: overrides of DLIO's keys, as (`++train.epochs`, `7`), and -D.

    UsageError for one that is no such pair.
    """
    pairs = []
    for text in parsed.override:
        name, equals, value = text.partition("=")
        if bool(equals) == name.startswith("~"):
            raise UsageError(f"{text}: expected an override such as ++workload.train.epochs=2")
        pairs.append((name if name[0] in OVERRIDE_MARKS else f"++{name}", value))
    return [*pairs, *parse_overrides(parsed)]


def read_storage(parsed: SimpleNamespace) -> tuple[StorageModel | None, list[tuple[str, str]]]:
    """Return the storage of --storage, if there is one, and what is said about the pattern: no -D of the storage."""
    values = parse_values(parsed)
    if parsed.storage is None:
        return None, values
    from dliosim.language.compile import compile_storage

    path = Path(parsed.storage)
    if not path.exists() and not path.suffix and path.name == parsed.storage:
        path = PATTERNS / "profiles" / f"{path}.dlio"
    if not path.is_file():
        what = "it is a directory" if path.is_dir() else "there is no such file"
        raise UsageError(f"--storage {parsed.storage}: {what}{HELP}{_list_storages(parsed.storage)}")
    name = compile_storage(path, []).storage.name
    about_storage = [pair for pair in values if pair[0].startswith(f"{name}.")]
    return compile_storage(path, about_storage).storage, [pair for pair in values if pair not in about_storage]


def _list_storages(given: str) -> str:
    """Return a sentence with the names of the storages that come with dliosim, the one like `given` first."""
    from dliosim.language.compile import describes_storage
    from dliosim.language.diagnostics import join_hints, suggest_word

    names = sorted(path.stem for path in (PATTERNS / "profiles").glob("*.dlio") if describes_storage(path))
    listed = f"shipped descriptions: {', '.join(names)}; `dliosim calibrate` describes the one you have"
    return join_hints(suggest_word(given, names), listed)


def describe_dataset(dataset: Dataset) -> str:
    """Return the text of a pattern that prepares a data set, for its manifest; imported when one is written."""
    from dliosim.language.unparse import write_dataset

    return write_dataset(dataset)


def parse_roots(parsed: SimpleNamespace) -> dict[str, Path]:
    """Return the absolute directory of each root; UsageError for a --root without `=`."""
    places = {"data": Path(parsed.dir).absolute()}
    for text in parsed.root:
        name, equals, place = text.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name) or not place:
            hint = f"\n  = help: write `--root NAME={place or text}`, or `--dir {place or text}`"
            raise UsageError(f"--root {text}: expected NAME=DIR{hint}")
        places[name] = Path(place).absolute()
    return places


def parse_used_roots(parsed: SimpleNamespace, workloads: Sequence[Workload]) -> dict[str, Path]:
    """Return `parse_roots` for some workloads; UsageError also for a --root that none of them uses."""
    used = {root for one in workloads for root in one.roots}
    places = parse_roots(parsed)
    for text in parsed.root:
        name = text.partition("=")[0]
        if name not in used:
            known = ", ".join(sorted(used)) or "none"
            raise UsageError(f"--root {text}: nothing that this pattern uses is on `root {name}`; roots here: {known}")
    return places
