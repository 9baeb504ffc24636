"""Restores: compile a block into the dataclass of the model, and count the checkpoints of `each once`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from dliosim.language.blocks import checkpoints
from dliosim.language.diagnostics import mistake
from dliosim.language.settings.block_settings import Settings, warn_about_draws
from dliosim.language.syntax.parser import SyntaxNode
from dliosim.model import Checkpoint, Dataset, Loop, Restore, Save, Verb
from dliosim.model.epoch_size import steps_of_epoch
from dliosim.model.verbs import count_due_saves
from dliosim.readable import count

#: How often each checkpoint was saved; None where a clock decides it
Saves: TypeAlias = Mapping[str, "int | None"]

#: `each once`: the number is that of the saves above.
_ALL: Final = -1


def compile_restore(settings: Settings, name: str, saved: Checkpoint | None, saves: int | None) -> Restore:
    """Return the verb of a `restore` block, and report its mistakes.

    `saved` is None if the checkpoint itself has a mistake. The verbs above save it `saves` times; None: a clock
    decides it.
    """
    context, scope = settings.context, settings.context.scope
    before = len(context.found)
    axes = partial(checkpoints.parse_axes, scope)
    fields = settings.read_fields(
        Restore,
        written_by=partial(checkpoints.parse_written_by, scope),
        parallel=lambda node: checkpoints.fit_split(axes(node), node, scope.job.ranks),
        everything=_read_mode,
        each=lambda node: _ALL if node.kind == "once" else scope.count(node.only_child),
    )
    verb = Restore(name, **fields)
    if saved is not None and not context.has_errors(before):
        with context.reporting():
            _check_splits(settings, verb, saved)
            _check_reads(settings, verb, saved)
            verb = replace(verb, each=_count_each(settings, verb, saved, saves))
    if verb.pause is not None:
        warn_about_draws(settings, "pause", verb.pause)
    return verb


def _read_mode(node: SyntaxNode) -> dict[str, bool]:
    once, sent = node.find("ONCE") is not None, node.find("unsent") is None
    by_file = node.find("by_file") is not None
    return {"everything": node.kind == "everything", "once": once, "sent": sent, "by_file": by_file}


def _check_reads(settings: Settings, verb: Restore, saved: Checkpoint) -> None:
    """Report E211 for ways to read that do not work with the checkpoint's access, or with one another."""
    access, is_sent = saved.access, verb.by_file or (verb.once and verb.sent)
    other = f"`{saved.name}` is read by `api {access.api}`"
    direct = f"`{saved.name}` is read by O_DIRECT"
    for is_wrong, head, reason, hint in (
        (verb.order != "as saved" and is_sent, "order", "ranks that receive must know the order", "leave `order` out"),
        (verb.order != "as saved" and access.collective, "order", other, "use `api posix`"),
        (verb.by_file and access.collective, "reads", f"{other}, all ranks together", "use `api posix`"),
        (verb.through == "mmap" and access.api != "posix", "through", other, "use `api posix`"),
        (verb.ahead and access.api != "posix", "read ahead", other, "use `api posix`"),
        (verb.through == "mmap" and access.cache == "off", "through", direct, "use `cache page`"),
        (verb.ahead and access.cache == "off", "read ahead", f"{direct}, past the page cache", "use `cache page`"),
    ):
        if is_wrong:
            message = f"`restore {saved.name}` cannot read in this way"
            settings.report("E211", message, hint, (head, reason))


def _check_splits(settings: Settings, verb: Restore, saved: Checkpoint) -> None:
    """Check the splits of a restore against what is saved.

    E218 and E113 if the state cannot have such a split; E218 for a restore that needs more than a subset wrote.
    """
    for head, split in (("written by", verb.written_by), ("parallel", verb.parallel)):
        if split is not None:
            checkpoints.check_split(saved, split, settings.setting_span(head))
    usual = saved.split(settings.context.scope.job.ranks)
    wrote, own = verb.written_by or usual, verb.parallel or usual
    if not wrote.played:
        return
    if saved.replicas == "dealt" and not wrote.has_all_copies:
        message = f"parts of `{saved.name}` are saved by ranks that take no part, {wrote.played} of {wrote.ranks} do"
        label = "each of them would need what those save"
        hint = "with `replicas once` the first of the ranks that hold the same saves it, which does take part"
        raise mistake("E218", message, settings.setting_span("written by"), label, hint=hint)
    if own == wrote and not verb.everything:
        return
    head = "reads" if own == wrote else "parallel" if verb.parallel is not None else "written by"
    label = "this is all of it" if own == wrote else f"this job's ranks are {own}"
    message = f"`{saved.name}` is the part of it that {wrote.played} of {wrote.ranks} ranks hold"
    hint = "a subset is restored by the same split, and each rank's own part"
    raise mistake("E218", message, settings.setting_span(head), label, hint=hint)


# ---- each once ----------------------------------------------------------------------------------------------------


def _count_each(settings: Settings, verb: Restore, saved: Checkpoint, saves: int | None) -> int:
    """Return how many checkpoints a restore reads, 0 for the newest alone; E211 if that is not known, or not there.

    What another split has saved is that of other jobs.
    """
    name, line = verb.checkpoint, settings.find_line("each")
    if not verb.each:
        if verb.pause is not None:
            hint = f"write `pause` above `restore {name}`, or `restore {name} each once {{`"
            raise mistake(
                "E211", "`pause` without `each`", settings.setting_span("pause"), "there is one to restore", hint=hint
            )
        return 0
    assert line is not None
    if verb.written_by not in (None, saved.split(settings.context.scope.job.ranks)):
        saves = 0
    if verb.each == _ALL and not saves:
        why = f"a clock decides how often `{name}` is saved" if saves is None else f"nothing above saves `{name}`"
        label = "how many are they?" if saves is None else "which ones?"
        hint = f"say how many: `restore {name} each of 10 once`"
        hint += "" if saves is None else f", those of other jobs; or write `repeat 10 {{ save {name} }}` above"
        raise mistake("E211", why, line.phrase, label, hint=hint)
    number = verb.each if verb.each != _ALL else saves or 0
    if saves and number > saves:
        message = f"{number:_} checkpoints of `{name}` to restore, and {saves:_} are saved above"
        raise mistake("E211", message, line.phrase, "too many", hint=f"write `restore {name} each once`")
    if saves and saved.keep is not None and saves > saved.keep:
        message = f"`{name}` is saved {count(saves, 'time')}, and {saved.keep:_} of them are kept"
        hint = f"write `keep all` in `{name}`, or give `-D {name}.keep=all`"
        raise mistake("E211", message, line.phrase, "the oldest of them are deleted by then", hint=hint)
    return number


def report_growth(settings: Settings, verb: Restore) -> None:
    """Report E211 for `each once` within a `repeat` that saves the checkpoint: there would be more each time."""
    name = verb.checkpoint
    message = f"`each once` in a `repeat` that saves `{name}`, too: each time there are more of them"
    settings.report("E211", message, f"write `restore {name} each once` behind the `repeat`", ("each", "how many?"))


def list_saves(verb: Verb, dataset: Dataset | None, ranks: int) -> Iterator[tuple[str, int | None]]:
    """Yield the checkpoints that a verb saves, and how often; a `repeat` is left out.

    `dataset` is that of a loop, None if it reads none. The number is None if a clock decides it.
    """
    if isinstance(verb, Save):
        yield verb.checkpoint, 1
    elif isinstance(verb, Loop):
        steps = steps_of_epoch(verb, dataset, ranks) if verb.checkpoints else 0
        for cadence in verb.checkpoints:
            sure = verb.seconds is None or cadence.unit == "end"
            yield cadence.checkpoint, count_due_saves(verb, cadence, steps) if sure else None


def multiply_saves(before: Saves, once: Saves, times: int) -> dict[str, int | None]:
    """Return the saves after a `repeat`, given the saves before it and after one run of its body."""

    def multiply(first: int | None, after: int | None) -> int | None:
        return None if first is None or after is None else first + times * (after - first)

    return {name: multiply(before.get(name, 0), after) for name, after in once.items()}
