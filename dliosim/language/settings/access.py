"""Access methods: compile how a block reads or writes into the dataclass of the model; named sets of MPI_Info hints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, cast

from dliosim.language.diagnostics import join_hints, mistake, suggest_word
from dliosim.language.settings.block_settings import CompileContext, Settings
from dliosim.language.settings.setting_overlay import overlay
from dliosim.language.syntax.ast import PatternBlock
from dliosim.language.syntax.parser import SyntaxNode
from dliosim.language.values.evaluator import Scope
from dliosim.model import (
    Access,
    Api,
    By,
    Communicator,
    Engine,
    HintSet,
    Layout,
    Order,
    Through,
    communicator_size,
)
from dliosim.model.job import MAX_RANKS
from dliosim.plugins import APIS
from dliosim.readable import count

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class NamedHints:
    """A set of hints."""

    #: name of the set
    name: HintSet = "library"
    #: keys and values of MPI_Info
    pairs: Pairs = ()


def hint_set(node: SyntaxNode, scope: Scope, together: int) -> NamedHints:
    """Return the set that a phrase of `hints` names, for files that `together` ranks open together.

    E113 for more aggregators than ranks.
    """
    if node.kind == "library":
        return NamedHints()
    if node.kind == "no_aggregation":
        return NamedHints("no-aggregation", (*_aggregation_pairs("disable"), *_SIEVING_OFF))
    pairs = [*_aggregation_pairs("enable"), *_SIEVING_OFF]
    aggregators, buffer = node.find("aggregators"), node.find("collective_buffer")
    if aggregators is not None:
        wanted = scope.count(aggregators.only_child)
        if wanted > together:
            owner = "the job has" if together == scope.job.ranks else "the file is opened together by"
            there = f"{owner} {count(together, 'rank')}"
            hint = f"write `min({wanted}, $ranks) aggregators`" if together == scope.job.ranks else ""
            message = f"{count(wanted, 'aggregator')} of {count(together, 'rank')}"
            raise mistake("E113", message, aggregators.span, there, hint=hint)
        nodes = -(-together // scope.job.ranks_per_node)
        # ROMIO takes one rank of a node, however large cb_nodes is, unless its list of hosts allows more.
        pairs += [("cb_nodes", str(wanted)), ("cb_config_list", f"*:{-(-wanted // nodes)}")]
    if buffer is not None:
        pairs.append(("cb_buffer_size", str(scope.size(buffer.only_child, 1, (1 << 31) - 1))))
    return NamedHints("two-phase", tuple(pairs))


_SIEVING_OFF: Pairs = (("romio_ds_read", "disable"), ("romio_ds_write", "disable"))


def _aggregation_pairs(state: str) -> Pairs:
    return ("romio_cb_read", state), ("romio_cb_write", state)


def merge_hints(named: NamedHints, explicit: Pairs) -> Pairs:
    """Return the pairs of a set and of `hint` lines; a `hint` replaces the pair of the set with the same key."""
    return tuple({**dict(named.pairs), **dict(explicit)}.items())


#: The default `transfer` of prepare and checkpoint in bytes: it bounds memory, and small samples are written together.
WRITE_TRANSFER: Final = 4 << 20
DEPTH: Final = 32  # default calls in flight of `engine queued`; fast storage needs at least this many
MAX_DEPTH: Final = 32768  # entries of the largest io_uring of the kernel


def merge_access(
    context: CompileContext, block: PatternBlock, name: SyntaxNode | None, heads: Iterable[str]
) -> Settings:
    """Return the lines of a block, merged over the lines of the access `name`.

    Of the access, only the settings in `heads` are taken, because the block takes no others.
    """
    lines = list(block.settings)
    if name is not None:
        taken = [line for line in context.find_noun(name, "access").settings if line.head in heads]
        lines = overlay(taken, lines)
    return Settings(context, block, lines)


def compile_access(settings: Settings, reads: Layout | None) -> Access:
    """Return how a block reads a data set of the layout `reads`; for None, how it writes."""
    scope = settings.context.scope
    writing = reads is None
    readers, by = settings.read("readers", lambda node: _readers(settings, node), (-1, "batch"))
    ahead = settings.read("prefetch", lambda node: scope.count(node.only_child, 1, 1 << 20), 0)
    if readers < 0:
        readers = 1 if ahead else 0
    prefetch = 0 if readers == 0 else ahead or 2
    per_sample = reads is not None and reads.kind == "file per sample"
    opened: Literal["each sample", "once"] = "each sample" if per_sample else "once"
    world: Communicator = "world"
    communicator = settings.read("communicator", lambda node: _communicator(settings, node), world)
    together = communicator_size(communicator, scope.job)
    hints = settings.read("hints", lambda node: hint_set(node, scope, together), NamedHints())
    cache, memory = settings.read("cache", lambda node: _cache(settings, node), ("page", 0))
    engine, depth = settings.read("engine", lambda node: _engine(settings, node), ("preadv", 0))
    posix: Api = "posix"
    direct: Through = "direct"
    api = settings.read("api", _api, posix)
    usual: Order = "by offset" if api == "mpi-collective" else "as planned"
    return Access(
        api=api,
        transfer=settings.read(
            "transfer",
            lambda node: None if node.kind == "whole_sample" else scope.size(node.only_child, 1, (1 << 31) - 1),
            WRITE_TRANSFER if writing else None,
        ),
        readers=readers,
        by=cast(By, by),
        prefetch=prefetch,
        open=settings.read(
            "open", lambda node: cast(Literal["each sample", "each epoch", "once"], node.kind.replace("_", " ")), opened
        ),
        cache=cast(Literal["page", "off", "memory"], cache),
        memory=memory,
        hints=merge_hints(hints, tuple(settings.convert(line, _hint, ("", "")) for line in settings.all_lines("hint"))),
        hint_set=hints.name,
        order=settings.read("order", lambda node: cast(Order, node.kind.replace("_", " ")), usual),
        communicator=communicator,
        scatter=settings.read("scatter", lambda node: node.kind == "by_node", False),
        engine=cast(Engine, engine),
        depth=depth,
        through=settings.read("through", lambda node: cast(Through, node.kind), direct),
    )


def _api(node: SyntaxNode) -> Api:
    if node.kind != "other":
        return node.kind.replace("_", "-")
    name, known = node.only_child.text, APIS.names()
    if name in known:
        return name
    near = suggest_word(name.lower(), known)
    if name.lower() in ("mpi", "mpiio", "mpi-io"):
        near = "did you mean `mpi-independent` or `mpi-collective`?"
    hint = join_hints(near, f"apis here: {', '.join(known)}")
    raise mistake("E003", f"unknown api `{name}`", node.only_child.span, "not an api", hint=hint)


def _readers(settings: Settings, node: SyntaxNode) -> tuple[int, str]:
    if node.find("PROCESSES") is not None:
        raise mistake(
            "E003",
            "`readers K processes` is kept for a later version of the language",
            node.span,
            "not in version 1",
            hint="readers are threads: `readers 4 by batch`",
        )
    count = settings.context.scope.count(node.children[0], 0, 1024)
    if node.find("by_sample") is not None:
        return count, "sample"
    return count, "batch in turn" if node.find("in_turn") is not None else "batch"


def _cache(settings: Settings, node: SyntaxNode) -> tuple[str, int]:
    if node.kind == "memory":
        if settings.block.kind in ("prepare", "checkpoint"):
            raise mistake(
                "E210", f"`{settings.block.kind}` does not take `cache memory`", node.span, "keeps what is read"
            )
        return "memory", settings.context.scope.size(node.only_child, 1)
    return node.kind, 0


def _communicator(settings: Settings, node: SyntaxNode) -> Communicator:
    if node.kind == "neighbours":
        return settings.context.scope.count(node.only_child, 1, MAX_RANKS)
    return "node" if node.kind == "node" else "world"


def _engine(settings: Settings, node: SyntaxNode) -> tuple[str, int]:
    if node.kind != "queued":
        return node.kind, 0
    return "queued", settings.context.scope.count(node.only_child, 1, MAX_DEPTH) if node.children else DEPTH


def _hint(node: SyntaxNode) -> tuple[str, str]:
    key, value = (child.text[1:-1] for child in node.children)
    if not key.strip():
        raise mistake("E003", "a hint needs a key", node.children[0].span, "empty")
    return key, value
