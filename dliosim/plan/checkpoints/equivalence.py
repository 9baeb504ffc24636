"""Equality of two checkpoints by the calls that they cause: a comparison of equal ones would show nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest

from dliosim.model import Checkpoint, Restore, Writers
from dliosim.plan.checkpoints.layout import cut_pieces, state_files
from dliosim.plan.checkpoints.reshard import cut_steps, own_reads


def are_saves_equal(one: Checkpoint, other: Checkpoint, ranks: int) -> bool:
    """Return whether the ranks of a job do the same when they save either checkpoint.

    Each checkpoint is considered alone, and `keep` is ignored.
    """
    plain_one, plain_other = (
        replace(_drop_call_settings(each), keep=None, at_most=_count_writers(each, ranks)) for each in (one, other)
    )
    cut = _have_same_cuts(one, other)
    return plain_one == plain_other and _are_equal(_list_writes(one, ranks, cut), _list_writes(other, ranks, cut))


def are_restores_equal(one: tuple[Checkpoint, Restore], other: tuple[Checkpoint, Restore], ranks: int) -> bool:
    """Return whether the ranks of a job do the same when they restore either checkpoint."""
    cut = _have_same_cuts(one[0], other[0])
    return _read_settings(*one) == _read_settings(*other) and _are_equal(
        _list_reads(*one, ranks, cut), _list_reads(*other, ranks, cut)
    )


def _count_writers(checkpoint: Checkpoint, ranks: int) -> int | None:
    """Return how many ranks may write at a time, None for all."""
    return checkpoint.at_most if state_files(checkpoint, checkpoint.split(ranks)).turns() else None


def _have_same_cuts(one: Checkpoint, other: Checkpoint) -> bool:
    """Return whether both cut the bytes of a file into the same calls; then the calls need not be listed."""
    return (one.access.transfer, one.pieces) == (other.access.transfer, other.pieces)


def _drop_call_settings(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint without settings that only decide which calls are made: calls are compared themselves."""
    return replace(
        checkpoint,
        writers=Writers("file per rank"),
        access=replace(checkpoint.access, transfer=None),
        parallel=None,
        pieces="by tensor",
        replicas="once",
        folder=0,
    )


def _list_writes(checkpoint: Checkpoint, ranks: int, same_pieces: bool) -> Iterator[object]:
    """Yield for each rank its writer, the files it makes, and its calls, or the shards that calls are cut from."""
    files = state_files(checkpoint, checkpoint.split(ranks))
    for rank in range(files.split.present_ranks):
        yield files.writer(rank), files.file_names(rank)
        shards = files.shards(rank)
        if same_pieces:
            yield from shards
        else:
            yield from cut_pieces(shards, checkpoint.access.transfer, checkpoint.pieces == "whole")


def _read_settings(checkpoint: Checkpoint, verb: Restore) -> tuple[object, ...]:
    """Return the settings that decide how bytes are read; those that decide only how they are written are left out."""
    read = replace(
        _drop_call_settings(checkpoint),
        fsync=True,
        keep=None,
        commit="rename",
        background=None,
        serialize=None,
        at_most=None,
    )
    return read, verb.once, verb.sent, verb.by_file, verb.through, verb.ahead


def _list_reads(checkpoint: Checkpoint, verb: Restore, ranks: int, same_pieces: bool) -> Iterator[object]:
    files = state_files(checkpoint, verb.written_by or checkpoint.split(ranks))
    holder = verb.parallel or checkpoint.split(ranks)
    access, whole = checkpoint.access, checkpoint.pieces == "whole"
    for rank in range(holder.present_ranks):
        yield rank
        found = own_reads(files, holder, verb, ranks, rank)()
        if same_pieces:
            yield from found
            continue
        for step in cut_steps(found, access.transfer, whole, access.page):
            yield step.file, step.segments, step.offset.tolist(), step.length.tolist()


def _are_equal(one: Iterable[object], other: Iterable[object]) -> bool:
    """Return whether both have the same items; stops at the first difference."""
    return all(a == b for a, b in zip_longest(one, other))
