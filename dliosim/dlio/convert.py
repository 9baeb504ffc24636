"""A workload file of DLIO as a pattern, and a report of what the pattern lacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dliosim.dlio import samples
from dliosim.dlio.config import Config, read_config
from dliosim.dlio.conversion import MUCH, Conversion, Line, Statement, block, write_lines
from dliosim.dlio.known_keys import (
    IMPORTED,
    PLUGINS,
    VERSIONS,
    Version,
    describe_unused,
    find_key,
    guess_version,
    suggest_key,
)
from dliosim.dlio.loops import loop_lines
from dliosim.dlio.saves import cadence, checkpoint_blocks, checkpoint_verbs, name_saved_amount
from dliosim.errors import HELP, UsageError
from dliosim.readable import size
from dliosim.units import format_seconds

#: Kinds of storage that are folders of a file system.
_FOLDERS: Final = ("local_fs", "parallel_fs", "direct_fs")
#: Keys of places.
_PLACES: Final = ("dataset.data_folder", "checkpoint.checkpoint_folder", "storage.storage_root")
#: Kinds of object storage.
_OBJECTS: Final = ("s3", "aistore")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern that a workload file became."""

    #: its text
    text: str
    #: the version of DLIO that the file is of, and how that is known
    version: str
    #: keys that became no line, and why
    unused: tuple[str, ...]
    #: what is only approximately so
    approximations: tuple[str, ...]
    #: what the user has to know or to do before a run
    notes: tuple[str, ...] = ()
    #: the `--dir` below which existing files are; empty if the pattern has data of its own
    place: str = ""
    #: in which lines that version does otherwise than the file asks for; empty if in none
    deeds: str = ""


def import_pattern(
    path: Path,
    overrides: Sequence[str] = (),
    version: str | None = None,
    as_run: bool = False,
    from_files: bool = False,
) -> Pattern:
    """Return a workload file, with `++workload.a.b=c` overrides, as a pattern.

    `version` is one of `VERSIONS`, or None to guess it. Raises UsageError for a file that is no workload file or has no
    counterpart here, and OSError.
    """
    config = read_config(path, overrides)
    for text in overrides:
        name = text.lstrip("+~").partition("=")[0].removeprefix("workload.")
        if not find_key(name) and (near := suggest_key(name)):
            raise UsageError(f"{text}: DLIO has no such key{HELP}write `{text.replace(name, near)}`")
    try:
        return convert(config, VERSIONS[version] if version else None, as_run, from_files)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}") from None


def convert(config: Config, version: Version | None = None, as_run: bool = False, from_files: bool = False) -> Pattern:
    """Return a workload file as a pattern. Raises UsageError for wrong values, and keys without a counterpart."""
    chosen = version or guess_version(config.values)
    task = Conversion(config, chosen, as_run, from_files)
    _refuse_others(config)
    head = (
        Line("dlio 1"),
        Line(f'workload {config.name} "{config.name}, as {"DLIO runs it" if as_run else "its DLIO file says"}"'),
        Line(f"seed {config.integer('train.seed', default=123)}", config.quote("train.seed")),
    )
    statements = tuple(_statements(task))
    text = write_lines([*head, *statements])
    deeds = "" if as_run else _name_deeds(task, statements)
    guessed = "" if version else "; guessed from its keys, `dliosim import --dlio` takes another"
    said = f"{chosen.name} ({chosen.source}{guessed})"
    notes = tuple(dict.fromkeys(task.notes))
    place = samples.existing_place(task, samples.TRAINING)[0] if from_files else ""
    return Pattern(
        text, said, tuple(describe_unused(config)), tuple(dict.fromkeys(task.approximations)), notes, place, deeds
    )


def _name_deeds(task: Conversion, words: Sequence[Statement]) -> str:
    """Return what the version of DLIO does and the file does not ask for: lines that `--as-run` has otherwise."""
    config = Config(task.config.name, task.config.values)
    try:
        deeds = tuple(_statements(Conversion(config, task.version, True, task.from_files)))
    except UsageError:
        return ""
    asked, done = (dict.fromkeys(_lines_of(statements)) for statements in (words, deeds))
    more, less = (
        ", ".join(f"`{text}`" for text in some if text not in others) for some, others in ((done, asked), (asked, done))
    )
    instead = f"{more} instead of {less}" if more and less else more or f"no {less}"
    return f"DLIO itself, as --as-run has it, does {instead}" if more or less else ""


def _lines_of(statements: Iterable[Statement]) -> Iterator[str]:
    for one in statements:
        yield " ".join((one.text if isinstance(one, Line) else one.head).split())
        yield from _lines_of(() if isinstance(one, Line) else one.lines)


def _refuse_others(config: Config) -> None:
    """Raise UsageError for object storage and plug-ins, with the number of keys that would import."""
    kind = config.choice("storage.storage_type", (*_FOLDERS, *_OBJECTS), "local_fs")
    reason = cure = ""
    if kind not in _FOLDERS:
        reason = f"storage.storage_type={kind}: object storage has no access method here"
        cure = "\n  = help: `++workload.storage.storage_type=local_fs` imports it as one of files"
    places = {key: str(config.values[key]).rpartition("://") for key in _PLACES if "://" in str(config.values.get(key))}
    if places and not reason:
        reason = (
            f"{config.quote(*places)}: storage behind `{next(iter(places.values()))[0]}://` has no access method here"
        )
        folders = (f"++workload.{key}={place.lstrip('/') or 'data'}" for key, (_, _, place) in places.items())
        cure = f"\n  = help: `{' '.join(folders)}` imports it as one of files"
    plugin = next((name for name in PLUGINS if config.has(name)), "")
    if plugin:
        reason = f"{config.quote(plugin)}: a plug-in of DLIO, which only DLIO can run"
    if config.text("reader.data_loader") == "vortex":
        reason = f"{config.quote('reader.data_loader')}: a loader that only DLIO has"
    if reason:
        ready = sum(name in IMPORTED for name in config.values)
        raise UsageError(f"{reason}; {ready} of the {len(config.values)} keys of this file would import{cure}")


def _trains(task: Conversion) -> bool:
    """Return True for a workload with a loop. As the first generation runs it, `workflow:` has to ask for one."""
    config = task.config
    must_ask = (
        task.as_run and task.version.is_first_generation and any(key.startswith("workflow.") for key in config.values)
    )
    if must_ask and not config.has("workflow.train"):
        task.approximations.append(f"workflow.train is not given: {task.version.name} does not train then")
    return config.flag("workflow.train", default=not must_ask)


def _statements(task: Conversion) -> Iterator[Statement]:
    config = task.config
    trains, saves = _trains(task), config.flag("workflow.checkpoint")
    generates = config.flag("workflow.generate_data")
    evaluates = config.flag("workflow.evaluation") and samples.files_of(task, samples.EVALUATION) > 0
    is_unread = samples.format_of(task) == samples.SYNTHETIC
    if is_unread and not (trains or saves):
        raise UsageError("dataset.format=synthetic: there are no files to generate, and nothing else is to be done")
    if is_unread and generates:
        task.approximations.append(
            f"{config.quote('workflow.generate_data')}: no loop reads the files: none is made here"
        )
    has_evaluation = evaluates or (generates and samples.files_of(task, samples.EVALUATION) > 0)
    parts = (
        [samples.TRAINING, *([samples.EVALUATION] if has_evaluation else [])]
        if (trains or generates) and not is_unread
        else []
    )
    for part in parts:
        yield samples.dataset_block(task, part)
    if not task.from_files:
        _name_amount(task, parts)
    every = cadence(task) if trains and saves else ""
    verbs = list(checkpoint_verbs(task)) if saves and not trains else []
    if every or verbs:
        yield from checkpoint_blocks(task)
        name_saved_amount(task, every)
    if not task.from_files:
        keys = config.quote("workflow.generate_data")
        for part in parts:
            comment = (keys,) if generates else (keys, "kept where it is there already")
            yield Line(f"prepare {part.name}", ": ".join(filter(None, comment)))
    pause = config.number("storage.post_generation_settle_seconds")
    if pause and generates:
        yield Line(f"pause {format_seconds(pause)}", config.quote("storage.post_generation_settle_seconds"))
    if trains:
        if not is_unread:
            yield Line("drop caches", "so that epoch 1 reads from storage; next to DLIO it is done by hand")
        yield block("train", loop_lines(task, every))
        if config.has("train.computation_time") and not is_unread:
            goal = config.number("metric.au", default=0.9)
            if not 0 < goal <= 1:
                ratio = goal / 100 if 1 < goal <= 100 else 0.9
                raise config.mistake(("metric.au",), "expected a ratio above 0 and up to 1", ratio)
            yield Line(
                f"expect utilization of train at least {100 * goal:g} %", config.quote("metric.au") or "DLIO's default"
            )
    yield from verbs
    if saves and not (trains or verbs or generates):
        raise UsageError(
            "workflow.checkpoint=True without workflow.train: say how many: checkpoint.num_checkpoints_write=10, "
            "checkpoint.num_checkpoints_read=10"
        )
    if not (trains or saves or generates):
        raise UsageError("workflow: neither generate_data, train nor checkpoint is True: there is nothing to do")


def _name_amount(task: Conversion, parts: Sequence[samples.Part]) -> None:
    """Report the bytes that a run writes before it reads, if they are many."""
    amount = sum(
        samples.files_of(task, part) * samples.samples_per_file(task) * samples.mean_size(task) for part in parts
    )
    if amount >= MUCH:
        less = "`++workload.dataset.num_files_train=N` makes N files, --from-files reads those of DLIO"
        task.notes.append(f"a run writes {size(amount, 3)} of data, unless they are there already: {less}")


def report_lines(pattern: Pattern) -> Iterator[str]:
    """Yield the report of an import: the version, approximations, and keys that became no line."""
    yield f"DLIO {pattern.version}"
    yield from pattern.notes
    if pattern.deeds:
        yield pattern.deeds
    for text in pattern.approximations:
        yield f"approximately: {text}"
    yield from pattern.unused
