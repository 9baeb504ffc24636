"""The data sets that a `read` line names: one, several, or a mixture of them by weights."""

from __future__ import annotations

from collections.abc import Callable

from dliosim.language.diagnostics import Label, mistake
from dliosim.language.syntax.parser import SyntaxNode
from dliosim.language.values.evaluator import Scope
from dliosim.language.values.quantities import range_mistake
from dliosim.model import Dataset, Sources
from dliosim.model.joined import WHOLE, join_datasets
from dliosim.units import RATIO


def read_sources(scope: Scope, node: SyntaxNode, find: Callable[[SyntaxNode], Dataset | None]) -> Dataset | None:
    """Return the data set that a `sources` node names, or several as one; None if one of them has a mistake.

    Raises Mistake: E102 for a data set twice, E113 for weights that are no multiples of 0.1 % or not 100 % in all.
    """
    until = node.find("all_end") or node.find("first_ends")
    parts = [child for child in node.children if child is not until]
    names = [child if node.kind == "names" else child.children[0] for child in parts]
    for number, name in enumerate(names):
        for before in names[:number]:
            if before.text == name.text:
                more = [Label(before.span, "and here")]
                raise mistake("E102", f"`{name.text}` is read twice", name.span, "a data set is named once", more=more)
    found = [find(name) for name in names]
    datasets = [one for one in found if one is not None]
    if len(datasets) < len(found):
        return None
    if len(datasets) == 1:
        return datasets[0]
    weights = tuple(_weight(scope, child.children[1]) for child in parts) if node.kind == "mixture" else ()
    if weights and sum(weights) != WHOLE:
        text = f"the weights add up to {sum(weights) / 10:g} %"
        raise mistake("E113", text, node.span, "must be 100 %", hint="`code 70 %, text 30 %` reads 7 of 10 from `code`")
    repeated = until is not None and until.kind == "all_end"
    return join_datasets(Sources(tuple(name.text for name in names), weights, repeated), datasets)


def _weight(scope: Scope, node: SyntaxNode) -> int:
    share = scope.require_dimension(node, RATIO)
    amount = share.amount * WHOLE
    if amount.denominator != 1 or not 0 < amount < WHOLE:
        raise range_mistake(share, "a multiple of 0.1 %, above 0 % and below 100 %")
    return int(amount)
