"""Files of patterns: found by path or by name, among those that come with dliosim, or in the form of DLIO."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dliosim import PATTERNS
from dliosim.dlio import ENDINGS
from dliosim.errors import UsageError
from dliosim.readable import printable

if TYPE_CHECKING:
    from dliosim.dlio.convert import Pattern
    from dliosim.language.diagnostics import PatternError


def find_pattern(given: str, keys: Sequence[str] = ()) -> Path:
    """Return the file of a pattern, given by its path or name; print on stderr which file a name stands for.

    For a workload file of DLIO it prints the report of an import with overrides of its `keys`. Raises PatternError
    [E103] if there is no such file, UsageError for keys of a pattern.
    """
    found = locate_pattern(given)
    if found is None:
        raise _missing_pattern(given)
    if found.is_dir() and (hint := _describe_folder(found)):
        raise _make_unreadable(given, "it is a directory", hint)
    if found != Path(given):
        sys.stderr.write(f"note: {printable(given)} is {printable(str(found))}\n")
    if found.suffix in ENDINGS and found.is_file():
        from dliosim.dlio.convert import import_pattern

        print_report(given, import_pattern(found, keys))
    elif keys:
        hint = f"`dliosim explain {shlex.quote(str(found))}` lists what -D may set"
        raise UsageError(f"{keys[0]} is for workload files of DLIO, and {given} is a pattern\n  = help: {hint}")
    return found


def locate_pattern(given: str) -> Path | None:
    """Return the file of a pattern, or None; one in the current folder comes before one of dliosim."""
    path, named = Path(given), Path(f"{given.removesuffix('.dlio')}.dlio")
    try:
        files = [named] if "/" in given else [named, PATTERNS / named]
        if path.exists() and not path.is_dir():
            return path
        return next((file for file in files if file.is_file()), path if path.is_dir() else None)
    except OSError:
        return None


def holds_results(given: str) -> bool:
    """Return whether a path is a directory that a run or a comparison wrote."""
    from dliosim.report.files.results import COMPARE, RESULTS

    return any((Path(given) / name).is_file() for name in (RESULTS, COMPARE))


def _describe_folder(folder: Path) -> str:
    """Return what to type in place of a folder of results or of patterns; empty for others."""
    if holds_results(str(folder)):
        return f"it has results: write `dliosim report {shlex.quote(str(folder))}`"
    inside = sorted(str(path) for path in folder.glob("*.dlio"))
    more = f", or another of its {len(inside)} patterns" if len(inside) > 1 else ""
    return f"name a pattern in it, as `{shlex.quote(inside[0])}`{more}" if inside else ""


def list_names() -> list[str]:
    """Return the names of the patterns that come with dliosim, sorted."""
    return sorted(path.stem for path in PATTERNS.glob("*.dlio"))


def print_report(name: str, pattern: Pattern) -> None:
    """Print the report of an import on stderr."""
    from dliosim.dlio.convert import report_lines

    first, *others = report_lines(pattern)
    lines = [f"{name}: imported as a file of {first}", *(f"  {line}" for line in others)]
    sys.stderr.write("".join(f"{printable(line)}\n" for line in lines))


def _missing_pattern(given: str) -> PatternError:
    from dliosim.dlio.config import find_workload_file
    from dliosim.dlio.known_keys import find_key
    from dliosim.language.diagnostics import join_hints, suggest_word

    try:
        Path(given).exists()
        reason = "there is no such file or pattern"
    except OSError as error:
        reason = str(error.strerror)
    here = [str(path.with_suffix("")) for path in Path(given).parent.glob("*.dlio")]
    plain = given.rpartition("=")[2].removesuffix(".dlio")
    near = suggest_word(plain, here) or suggest_word(Path(plain).stem, list_names())
    workload, key = find_workload_file(given), find_key(given.partition("=")[0])
    if workload:
        near = f"write `{workload}`, which is its file;"
    elif key:
        near = f"write `++{key}={given.partition('=')[2]}` for a key of a workload file of DLIO;"
    elif given.startswith("workload="):
        near = join_hints(near, "A workload of DLIO is given by its file, as `FOLDER/NAME.yaml`;")
    hint = join_hints(near, "`dliosim patterns` lists the patterns that come with dliosim")
    return _make_unreadable(given, reason, hint)


def _make_unreadable(given: str, reason: str, hint: str) -> PatternError:
    from dliosim.language.diagnostics import Diagnostic, PatternError

    return PatternError([Diagnostic("E103", f"cannot read the pattern: {reason}", help=(hint,), file=given)])
