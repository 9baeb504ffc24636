"""Access methods: compile how a block reads or writes into the dataclass of the model; named sets of MPI_Info hints."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, cast

from dliosim.language.diagnostics import join_hints, mistake, suggest_word
from dliosim.language.settings.block_settings import CompileContext, Settings
from dliosim.language.settings.setting_overlay import overlay
from dliosim.language.syntax.ast import PatternBlock
from dliosim.language.syntax.declarations import SETTINGS
from dliosim.language.syntax.parser import SyntaxNode
from dliosim.language.values.evaluator import Scope
from dliosim.model import Access, Api, HintSet, Layout, communicator_size
from dliosim.model.access import DEPTH, MAX_DEPTH, MAX_TRANSFER
from dliosim.plugins import APIS
from dliosim.readable import count

Pairs = tuple[tuple[str, str], ...]


def read_hint_set(scope: Scope, together: int, node: SyntaxNode) -> tuple[HintSet, Pairs]:
    """Return the set of hints that a phrase names, and its pairs, for files that `together` ranks open together.

    E113 for more aggregators than ranks.
    """
    if node.kind == "library":
        return "library", ()
    name: HintSet = "two-phase" if node.kind == "two_phase" else "no-aggregation"
    pairs = [(f"romio_cb_{way}", "enable" if name == "two-phase" else "disable") for way in ("read", "write")]
    pairs += [(f"romio_ds_{way}", "disable") for way in ("read", "write")]
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
        pairs.append(("cb_buffer_size", str(scope.size(buffer.only_child, 1, MAX_TRANSFER))))
    return name, tuple(pairs)


#: The default `transfer` of prepare and checkpoint in bytes: it bounds memory, and small samples are written together.
WRITE_TRANSFER: Final = 4 << 20


def merge_access(context: CompileContext, block: PatternBlock, clause: SyntaxNode | None) -> Settings:
    """Return the lines of a block, merged over the lines of the access in its `with` clause (None: the block alone)."""
    lines, known = list(block.settings), SETTINGS[block.kind]
    if clause is not None:
        taken = [line for line in context.find_noun(clause.only_child, "access").settings if line.head in known]
        lines = overlay(taken, lines)
    return Settings(context, block, lines)


def compile_access(settings: Settings, reads: Layout | None) -> Access:
    """Return the access by which a block reads a data set of the layout `reads`; for None, by which it writes."""
    readers, cache, engine = (partial(read, settings) for read in (_readers, _cache, _engine))
    values = settings.read_fields(Access, api=_api, readers=readers, cache=cache, engine=engine)
    if reads is None:
        values.setdefault("transfer", WRITE_TRANSFER)
    elif reads.kind == "file per sample":
        values.setdefault("open", "each sample")
    if values.get("api") == "mpi-collective":
        values.setdefault("order", "by offset")
    ahead = values.get("prefetch", 0)
    values["prefetch"] = (ahead or 2) if values.setdefault("readers", 1 if ahead else 0) else 0
    scope, usual = settings.context.scope, cast(tuple[HintSet, Pairs], ("library", ()))
    together = communicator_size(values.get("communicator", "world"), scope.job)
    name, pairs = settings.read("hints", partial(read_hint_set, scope, together), usual)
    own = [settings.convert(line, _hint, ("", "")) for line in settings.all_lines("hint")]
    return Access(**values, hint_set=name, hints=tuple({**dict(pairs), **dict(own)}.items()))


def _api(node: SyntaxNode) -> Api:
    if node.kind != "other":
        return node.kind.replace("_", "-")
    name = node.only_child.text
    if name in APIS:
        return name
    known = APIS.names()
    near = suggest_word(name.lower(), known)
    if name.lower() in ("mpi", "mpiio", "mpi-io"):
        near = "did you mean `mpi-independent` or `mpi-collective`?"
    hint = join_hints(near, f"apis here: {', '.join(known)}")
    raise mistake("E003", f"unknown api `{name}`", node.only_child.span, "not an api", hint=hint)


def _readers(settings: Settings, node: SyntaxNode) -> dict[str, Any]:
    processes = node.find("PROCESSES") is not None
    by = "sample" if node.find("by_sample") else "batch in turn" if node.find("in_turn") else "batch"
    readers = settings.context.scope.count(node.children[0], 1 if processes else 0, 1024)
    return {"readers": readers, "processes": processes, "by": by}


def _cache(settings: Settings, node: SyntaxNode) -> dict[str, Any]:
    if node.kind == "memory" and settings.block.kind in ("prepare", "convert", "checkpoint"):
        text = f"`{settings.block.kind}` does not take `cache memory`"
        raise mistake("E210", text, node.span, "keeps what is read")
    memory = settings.context.scope.size(node.only_child, 1) if node.children else 0
    return {"cache": node.kind, "memory": memory}


def _engine(settings: Settings, node: SyntaxNode) -> dict[str, Any]:
    depth = settings.context.scope.count(node.only_child, 1, MAX_DEPTH) if node.children else DEPTH
    return {"engine": node.kind, "depth": depth if node.kind == "queued" else 0}


def _hint(node: SyntaxNode) -> tuple[str, str]:
    key, value = (child.text[1:-1] for child in node.children)
    if not key.strip():
        raise mistake("E003", "a hint needs a key", node.children[0].span, "empty")
    return key, value
