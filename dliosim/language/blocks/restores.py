"""`restore`: its block to the dataclass of the model."""

from __future__ import annotations

from dliosim.language.blocks import parallelism
from dliosim.language.diagnostics import Mistake, mistake
from dliosim.language.settings.block_settings import Settings
from dliosim.language.syntax.parser import Node
from dliosim.model import Checkpoint, Restore


def restore(settings: Settings, name: str, saved: Checkpoint | None) -> Restore:
    """The verb of a block, whose mistakes are reported; `saved` is None where the checkpoint has some of its own."""
    context, scope = settings.context, settings.context.scope
    before = len(context.found)
    everything, once = settings.read("reads", _reads, (False, False))
    verb = Restore(
        checkpoint=name,
        written_by=settings.read("written by", lambda node: parallelism.written(scope, node), None),
        parallel=settings.read(
            "parallel", lambda node: parallelism.fitted(parallelism.axes(scope, node), node, scope.job.ranks), None
        ),
        shift=settings.read("shifted by", lambda node: scope.count(node.only, 0), 0),
        everything=everything,
        once=once,
    )
    if saved is not None and not any(found.is_error for found in context.found[before:]):
        try:
            _check(settings, verb, saved)
        except Mistake as error:
            context.report(error)
    return verb


def _reads(node: Node) -> tuple[bool, bool]:
    return node.kind == "everything", node.find("broadcast") is not None


def _check(settings: Settings, verb: Restore, saved: Checkpoint) -> None:
    """E218 and E113 for splits that what is saved cannot have; E218 for a subset of which there is less."""
    for head, split in (("written by", verb.written_by), ("parallel", verb.parallel)):
        if split is not None:
            parallelism.check_split(saved, split, settings.place(head))
    usual = saved.split(settings.context.scope.job.ranks)
    wrote, own = verb.written_by or usual, verb.parallel or usual
    if not wrote.played:
        return
    if saved.replicas == "dealt" and not wrote.has_all_copies:
        message = f"of `{saved.name}` some is saved by ranks that take no part, {wrote.played} of {wrote.ranks} do"
        label = "each of them would need what those save"
        hint = "with `replicas once` the first of the ranks that hold the same saves it, which does take part"
        raise mistake("E218", message, settings.place("written by"), label, hint=hint)
    if own == wrote and not verb.everything:
        return
    head = "reads" if own == wrote else "parallel" if verb.parallel is not None else "written by"
    label = "this is all of it" if own == wrote else f"this job's ranks are {own}"
    message = f"`{saved.name}` is the part of it that {wrote.played} of {wrote.ranks} ranks hold"
    hint = "a subset is restored by the same split, and each rank's own part"
    raise mistake("E218", message, settings.place(head), label, hint=hint)
