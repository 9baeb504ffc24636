"""The commands `dliosim new` and `import`: a pattern to begin with, from a template, your files, or DLIO's files."""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from dliosim import PATTERNS
from dliosim.commands.command_line.command_table import TRACE_READER
from dliosim.commands.command_line.parser import quote_word
from dliosim.commands.command_line.pattern_files import holds_results, list_names, print_report
from dliosim.commands.command_line.program import insert_program, load_named
from dliosim.commands.job.terminal import print_text
from dliosim.dlio import ENDINGS
from dliosim.dlio.config import find_workload_file
from dliosim.dlio.convert import import_pattern
from dliosim.errors import HELP, DliosimError, ExecutionError, UsageError
from dliosim.model import Job
from dliosim.readable import printable
from dliosim.report.files.results import write_new

#: The pattern to begin with, and that for files that are there already: `FILES` stands for these, `NAME` for its name.
_TEMPLATE: Final = Path(__file__).with_name("new.dlio")
_OWN_FILES: Final = Path(__file__).with_name("own_files.dlio")

#: Endings of logs of I/O.
_TRACES: Final = (".pfw", ".pfw.gz", ".darshan")
#: Endings of files next to data.
_SIDECARS: Final = (".index", ".idx", ".json")
_LOOKED_AT: Final = 1000  # files of a folder
_SHOWN: Final = 3  # names of files that are left out

#: A line about files of HDF5, and the comparison of ways to read them: reads alone, as compute would hide
#: them, that decompress, as h5py does.
_HDF5_FILES: Final = r'from files "[^"]*\.(h5|hdf5|he5|nc4)"'
_READERS_OF_HDF5: Final = (
    '--vary through=direct,library -D train.decode=on -D train.epochs=1 -D train.readers=0 -D "compute=0 s"'
)


def new_command(parsed: SimpleNamespace) -> int:
    """Write a new pattern, and print the next command; return 0. Raises UsageError and ExecutionError."""
    if parsed.name.endswith(ENDINGS):
        plain = parsed.name.rpartition(".")[0] or "mine"
        hint = f"write `dliosim new {quote_word(plain)}`; {_describe_import(parsed.name, plain)}"
        raise UsageError(f"{parsed.name}: the file of a pattern ends with .dlio\n  = help: {hint}")
    given = Path(parsed.name.removesuffix(".dlio"))
    name = re.sub(r"^(?=[0-9])|\W", "_", given.name, flags=re.ASCII)
    if not name:
        raise UsageError("a pattern needs a name\n  = help: write `dliosim new mine`")
    path = given.with_name(f"{given.name}.dlio")
    if path.exists():
        source = [word for one in parsed.source or () for word in ("--from", one)]
        free = " ".join(map(quote_word, [_free_name(given), *source]))
        hint = f"write `dliosim new {free}`, or change the one that is there"
        raise ExecutionError(f"cannot write {path}: it is there already{HELP}{hint}")
    draft = _draft_pattern(parsed.source or (), parsed.generated, parsed.keep_names, given.name)
    renamed = re.sub(r"^workload \w+", f"workload {name}", draft.text, count=1, flags=re.MULTILINE)
    write_new(path, renamed.replace('"NAME/', f'"{name}/'))  # the template has its name in its paths, too
    for line in draft.notes:
        sys.stderr.write(f"note: {printable(line)}\n")
    indent = " " * (len(printable(str(path))) + 8)
    first, *others = _list_next_lines(draft, given, path)
    sys.stderr.write(insert_program(f"wrote {printable(str(path))}; next: {first}\n"))
    for line in others:
        sys.stderr.write(insert_program(f"{indent}{line}\n"))
    return 0


@dataclass(frozen=True, slots=True)
class _Draft:
    """The text of a pattern, and what it was made of."""

    text: str  #: with NAME for its name
    notes: Sequence[str] = ()  #: what to know of it
    place: Path | None = None  #: the folder of the files that it reads
    trace: str = ""  #: the trace that it was made of, as words of a command line
    ranks: int = 2  #: ranks on which to run it
    makes_data: bool = False  #: the trace has the writes that made its data, as a first run has


def _draft_pattern(sources: Sequence[str], generated: bool, keep_names: bool, made: str) -> _Draft:
    """Return the pattern that was asked for: a template, a shipped one, or for files or traces; `made` is its name."""
    if not sources:
        if generated:
            raise UsageError(f"--generated: like which files?{HELP}write `--from FILES --generated`")
        return _Draft(_TEMPLATE.read_text(encoding="utf-8"))
    if "" in sources:
        raise UsageError(f"--from is empty{HELP}name a pattern, a file of data or its folder, or a trace")
    source = sources[0]
    named = [None if _is_pattern(one) else _name_data(Path(one)) for one in sources]
    if all(place is not None and _find_trace(*place) for place in named):
        return _draft_from_traces(sources, generated, keep_names)
    if len(sources) > 1:
        other = next(one for one, place in zip(sources, named, strict=True) if place is None or not _find_trace(*place))
        text = f"--from {other}: there is no trace, and several `--from` are traces of one job"
        raise UsageError(f"{text}{HELP}record one by `dliosim run … --trace`, or name one folder of files or pattern")
    if keep_names:
        raise UsageError(f"--keep-names: {source} is no trace{HELP}leave --keep-names out: it is for names in a trace")
    if named[0] is None:
        text = _read_shipped(source, made)
        if generated:
            raise UsageError(f"--generated: {source} is a pattern{HELP}give files, or their folder, to --from")
        return _Draft(text)
    folder, files = named[0]
    if holds_results(source):
        text = f"--from {source}: it has results of dliosim, and no data that a job reads"
        raise UsageError(f"{text}{HELP}write `dliosim report {quote_word(source)}`, or run it again with --trace")
    text, notes = _write_reader(folder, files), list(_describe_files(folder, files))
    if not generated:
        return _Draft(text, notes, folder)
    from dliosim.commands.lookalike_pattern import make_lookalike

    text, differences = make_lookalike(text, folder)
    return _Draft(text, [*notes, *differences])


def _is_pattern(source: str) -> bool:
    return source.removesuffix(".dlio") in list_names() or source.endswith((".dlio", *ENDINGS))


def _draft_from_traces(sources: Sequence[str], generated: bool, keep_names: bool) -> _Draft:
    """Return the pattern of a job by its traces."""
    if generated:
        raise UsageError(f"--generated: {sources[0]} is a trace{HELP}leave --generated out: its pattern makes its data")
    text, notes, ranks, files, makes_data = load_named(TRACE_READER)([Path(source) for source in sources], keep_names)
    trace = " ".join(quote_word(str(file)) for file in files)
    return _Draft(text, notes, trace=trace, ranks=ranks, makes_data=makes_data)


def _list_next_lines(draft: _Draft, given: Path, path: Path) -> Iterator[str]:
    """Yield the commands to type next."""
    shown, place = printable(quote_word(str(path))), draft.place
    if draft.trace:
        results = quote_word(f"{given}-run")
        traced = f"mpiexec -n {draft.ranks} dliosim run {shown} --trace --output {results}"
        if draft.makes_data or "\nprepare " not in draft.text:
            yield traced
        else:
            yield f"mpiexec -n {draft.ranks} dliosim run {shown}    (makes its data)"
            yield f"then: {traced}"
        yield f"what differs: dliosim analyze {printable(draft.trace)} {results}"
        return
    shown += f" --dir {printable(quote_word(str(place)))}" if place else ""
    yield f"dliosim check {shown}"
    then, compute = ("then, with your step time", " -D 'compute=20 ms'") if place else ("then", "")
    yield f"{then}: mpiexec -n 2 dliosim run {shown}{compute}"
    if place and re.search(_HDF5_FILES, draft.text):
        yield f"or, next to h5py: mpiexec -n 2 dliosim compare {shown} {_READERS_OF_HDF5}"


def _free_name(given: Path) -> str:
    """Return a name like a given one that no pattern has yet."""
    named = (given.with_name(f"{given.name}{number}") for number in count(2))
    return str(next(one for one in named if not one.with_name(f"{one.name}.dlio").exists()))


def _describe_import(file: str, name: str) -> str:
    """Return how a workload file of DLIO becomes a pattern of a name."""
    line = f"dliosim import {quote_word(file)} -o {quote_word(f'{name}.dlio')}"
    return f"`{line}` makes a pattern of a workload file of DLIO"


def _write_reader(folder: Path, files: str) -> str:
    """Return a pattern that reads files below a folder."""
    text = _OWN_FILES.read_text(encoding="utf-8").replace("FILES", files)
    if line := _name_arrays(folder, files):
        text = re.sub("# datasets .*", line, text)
    if "." not in files:  # an ending says the format; a file without one is a sample as it is
        text = text.replace("# format   hdf5             #", "format     raw              #")
    if re.search(_HDF5_FILES, text):  # the comparison with h5py has no compute, so no utilization
        text = re.sub(r"\n#[^\n]*\nexpect [^\n]*\n", "", text)
    return text


def _find_trace(folder: Path, files: str) -> bool:
    """Return whether the first of some files is a log of I/O."""
    first = next((one.name for one in sorted(islice(folder.glob(files), _LOOKED_AT)) if one.is_file()), files)
    return first == "trace.h5" or first.endswith(_TRACES) or (folder / "trace.h5").is_file()


def _describe_files(folder: Path, files: str) -> Iterator[str]:
    """Yield which files of a folder a pattern leaves out, and how it reads files of no known format."""
    from dliosim.language.blocks.external_datasets import FORMAT_OF_ENDING

    below, _, name = files.rpartition("/")
    found = (one.name for one in islice(folder.glob(f"{below}/*" if below else "*"), _LOOKED_AT) if one.is_file())
    others = sorted(one for one in found if not fnmatchcase(one, name)) if "*" in name else []
    if others:
        more = ", ..." * (len(others) > _SHOWN)
        yield f"left out (not `{name}`): {', '.join(others[:_SHOWN])}{more}"
    ending = Path(files).suffix.lower()
    if ending and ending not in FORMAT_OF_ENDING and ending != ".raw":
        yield f"no format has the ending `{ending}`: each file is a sample of raw bytes (`format raw`)"
    archive = next((one.name for one in folder.glob(files) if re.search(r"\.(tar\.\w+|tgz)$", one.name)), "")
    if archive:
        yield f"{archive} is a compressed archive, read as one sample: unpack it to .tar, and its members are samples"


def _name_data(path: Path) -> tuple[Path, str] | None:
    """Return the folder of data, and their names for `from files`; None if there are no files at the path.

    Of a folder, those with the commonest ending; those at any depth below, if it has no files itself.
    """
    with suppress(OSError, ValueError):  # the name cannot be opened, or the folder not be read
        if path.is_file():
            return path.parent, _plain_name(path.name)
        for below in ("", "**/"):
            suffixes = Counter(one.suffix for one in islice(path.glob(f"{below}*"), _LOOKED_AT) if one.is_file())
            for suffix in sorted(suffixes, key=lambda each: (each in _SIDECARS, -suffixes[each]))[:1]:
                return path, f"{below}*{_plain_name(suffix)}"
    return None


def _plain_name(name: str) -> str:
    """Return a name with `?`, which stands for any letter, in place of what means something in a pattern."""
    return re.sub(r"[^\w .,+=@~-]", "?", name)


def _name_arrays(folder: Path, files: str) -> str:
    """Return the line that names all arrays of files; empty if the first one needs none, or cannot be read."""
    from dliosim.execute.datasets.discovery import FileFinder
    from dliosim.language.compile import compile_text
    from dliosim.language.diagnostics import PatternError
    from dliosim.report.progress.progress_line import ProgressLine

    named = _name_data(next((one for one in folder.glob(files) if one.is_file()), folder))
    if named is None:
        return ""
    finder = FileFinder({"data": named[0]}, ProgressLine(None))
    try:
        compile_text(_OWN_FILES.read_text(encoding="utf-8").replace("FILES", named[1]), [], Job(1), finder)
    except PatternError as error:
        cures = (re.match("write `(datasets [^`]+)`", line) for found in error.diagnostics for line in found.help)
        return next((cure[1] for cure in cures if cure), "")
    except (DliosimError, OSError):  # `check` says what is wrong with it
        pass
    return ""


def _read_shipped(name: str, made: str) -> str:
    """Return the text of a pattern that comes with dliosim, without what is for its own test; `made`: the new name."""
    from dliosim.language.diagnostics import join_hints, suggest_word

    stem = name.removesuffix(".dlio")
    if name.endswith(ENDINGS):
        hint = _describe_import(name, made)
        raise UsageError(f"--from {name}: no pattern that comes with dliosim\n  = help: {hint}")
    if Path(name).is_dir():
        hint = f"name them by `**/` in the pattern of `dliosim new {quote_word(made)} --from FILE`"
        raise UsageError(f"--from {name}: no files in {name}, nor in folders below\n  = help: {hint}")
    if stem not in list_names() and Path(name).exists():
        raise UsageError(
            f"--from {name}: it is a pattern of yours{HELP}write `cp {quote_word(name)} {quote_word(made)}.dlio`"
        )
    if stem not in list_names() and Path(name).suffix not in ("", ".dlio"):
        raise UsageError(f"--from {name}: there is no such file\n  = help: name a file of data, or its folder")
    if stem not in list_names():
        near, listed = suggest_word(stem, list_names()), "`dliosim patterns` lists the patterns that come with dliosim"
        hint = join_hints(near, listed)
        raise UsageError(f"--from {name}: there is no such file, folder or shipped pattern\n  = help: {hint}")
    text = (PATTERNS / f"{stem}.dlio").read_text(encoding="utf-8")
    return re.sub(r"^# small: .*\n", "", text, flags=re.MULTILINE)


def import_command(parsed: SimpleNamespace) -> int:
    """Write the pattern, or print it without -o, and report on stderr what it lacks; return 0."""
    try:
        pattern = import_pattern(
            Path(parsed.file), parsed.override, parsed.dlio, as_run=parsed.as_run, from_files=parsed.from_files
        )
    except OSError as error:
        near = find_workload_file(parsed.file)
        cure = f"write `dliosim import {near or 'FOLDER/NAME.yaml'}`{'' if near else ', the path of the file'}"
        if (PATTERNS / f"{parsed.file}.dlio").exists():
            cure = f"`{parsed.file}` is a pattern already: write `dliosim plan {parsed.file} --ranks 4`"
        raise UsageError(f"cannot read {parsed.file}: {error.strerror}\n  = help: {cure}") from error
    except UsageError as error:
        if not _is_text(Path(parsed.file)):
            line = f"dliosim new mine --from {shlex.quote(parsed.file)}"
            raise UsageError(f"{error.args[0]}\n  = help: data are named in a pattern: `{line}` writes one") from error
        raise
    print_report(parsed.file, pattern)
    if parsed.output is None:
        print_text(pattern.text)
        return 0
    write_new(Path(parsed.output), pattern.text)
    place = f" --dir {printable(pattern.place)}" if pattern.place else ""
    written = printable(parsed.output)
    sys.stderr.write(f"wrote {written}; next: dliosim plan {written} --ranks 4{place}\n")
    return 0


def _is_text(path: Path) -> bool:
    """Return whether the first bytes of a file are text."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(1000).isascii()
    return True
