"""Named sets of MPI_Info hints: what `hints two-phase` and `hints no-aggregation` ask of MPI-IO."""

from __future__ import annotations

from dataclasses import dataclass

from dliosim.language.diagnostics import mistake
from dliosim.language.syntax.parser import Node
from dliosim.language.values.evaluator import Scope
from dliosim.model import HintSet
from dliosim.readable import count

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Hints:
    """The name of a set, and its pairs."""

    name: HintSet = "library"
    pairs: Pairs = ()


def hint_set(node: Node, scope: Scope, together: int) -> Hints:
    """The set that a phrase of `hints` names, for files that so many ranks open together.

    E113 for more aggregators than ranks.
    """
    if node.kind == "library":
        return Hints()
    if node.kind == "no_aggregation":
        return Hints("no-aggregation", (*_aggregation("disable"), *_SIEVING_OFF))
    pairs = [*_aggregation("enable"), *_SIEVING_OFF]
    aggregators, buffer = node.find("aggregators"), node.find("collective_buffer")
    if aggregators is not None:
        wanted = scope.count(aggregators.only)
        if wanted > together:
            owner = "the job has" if together == scope.job.ranks else "who open the file together are"
            there = f"{owner} {count(together, 'rank')}"
            hint = f"write `min({wanted}, $ranks) aggregators`" if together == scope.job.ranks else ""
            message = f"{count(wanted, 'aggregator')} of {count(together, 'rank')}"
            raise mistake("E113", message, aggregators.span, there, hint=hint)
        nodes = -(-together // scope.job.ranks_per_node)
        # ROMIO takes one rank of a node, however large cb_nodes is, unless its list of hosts allows more.
        pairs += [("cb_nodes", str(wanted)), ("cb_config_list", f"*:{-(-wanted // nodes)}")]
    if buffer is not None:
        pairs.append(("cb_buffer_size", str(scope.size(buffer.only, 1, (1 << 31) - 1))))
    return Hints("two-phase", tuple(pairs))


_SIEVING_OFF: Pairs = (("romio_ds_read", "disable"), ("romio_ds_write", "disable"))


def _aggregation(state: str) -> Pairs:
    return ("romio_cb_read", state), ("romio_cb_write", state)


def with_hints(named: Hints, explicit: Pairs) -> Pairs:
    """The pairs of a set, and those of `hint` lines, of which one takes the place of the set's of the same key."""
    return tuple({**dict(named.pairs), **dict(explicit)}.items())
