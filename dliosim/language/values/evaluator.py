"""Evaluate names and expressions: parameters, built-ins, and quantities with dimensions, all in exact fractions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, TypeVar

from dliosim.language.diagnostics import Label, Mistake, ReportedMistake, join_hints, mistake, suggest_word
from dliosim.language.source import SourceText, Span
from dliosim.language.syntax.ast import MAX_CHAIN, Param, follow_reference
from dliosim.language.syntax.parser import SyntaxNode, parse
from dliosim.language.values import quantities
from dliosim.language.values.quantities import Value
from dliosim.model import Distribution, Job, Split
from dliosim.units import COUNT, SIZE, TIME, UNITS, Dimension, parse_number

T = TypeVar("T")

MAX_BITS: Final = 4096  # of a numerator or denominator; bounds the time of an expression
MAX_DEPTH: Final = 100  # of an expression, the parameters in it included
MAX_COUNT: Final = 2**48
#: Names that are built in inside a checkpoint.
OF_SPLIT: Final = ("tensor", "pipeline", "data")


@dataclass(slots=True)
class Scope:
    """The names of a pattern and their values; evaluates phrases."""

    #: parameters by name
    params: Mapping[str, Param]
    #: gives `$ranks`, `$nodes` and `$ranks_per_node`
    job: Job
    #: parameters with a mistake that is reported already
    broken: set[str] = field(default_factory=set)
    #: parameters that anything asked for
    used: set[str] = field(default_factory=set)
    #: in a checkpoint: the split of its ranks, which gives `$tensor`, `$pipeline` and `$data`
    split: Split | None = None
    #: whether paths are written as they are, in this locale; not in the description of data that exist already
    writes_paths: bool = True
    _values: dict[str, Value] = field(default_factory=dict)
    _evaluated: dict[Span, Value] = field(default_factory=dict)
    _active: list[str] = field(default_factory=list)
    _depth: int = 0

    def narrow_to_split(self, split: Split) -> Scope:
        """Return the scope of a checkpoint with this split; parameters may have other values there."""
        return Scope(self.params, self.job, self.broken, self.used, split, self.writes_paths)

    # ---- phrases --------------------------------------------------------------------------------------------------

    def phrase(self, rule: str, span: Span) -> SyntaxNode:
        """Return the phrase, parsed by a rule; `$name` alone stands for the text of that parameter."""
        if re.fullmatch(r"\$\w+", span.text, re.ASCII) and span.text[1:] not in self._builtins():
            return self._follow_param(span, lambda value: self.phrase(rule, value))
        return parse(rule, span)

    def _follow_param(self, reference: Span, read: Callable[[Span], T]) -> T:
        param = self.find_param(reference)
        if param.name in self._active:
            text, hint = f"`{reference.text}` needs its own value", f"write a value in place of `{reference.text}`"
            raise mistake("E101", text, reference, "goes round in a circle", hint=hint)
        if len(self._active) >= MAX_CHAIN:
            message = f"more than {MAX_CHAIN} parameters that refer to each other"
            raise mistake("E101", message, reference, "give this one a value")
        self._active.append(param.name)
        try:
            return read(param.value)
        finally:
            self._active.pop()

    def find_param(self, reference: Span) -> Param:
        """Return the parameter of `$name`; E101 if there is none, or if its definition has a mistake."""
        name = reference.text[1:]
        self.used.add(name)
        if name in self.broken:
            raise ReportedMistake(mistake("E101", f"unknown name `{reference.text}`", reference).diagnostic)
        if name not in self.params:
            known = [*self.params, *self._builtins()]
            listed = f"known here: {', '.join(f'${known_name}' for known_name in sorted(known))}"
            near = suggest_word(name, known).replace("`", "`$", 1)
            if name in OF_SPLIT:
                near = f"`{reference.text}` means something in the other lines of a checkpoint with `parallel`;"
            raise mistake(
                "E101", f"unknown name `{reference.text}`", reference, "not defined", hint=join_hints(near, listed)
            )
        return self.params[name]

    def _builtins(self) -> dict[str, int]:
        job = self.job
        known = {"ranks": job.ranks, "nodes": job.nodes, "ranks_per_node": job.ranks_per_node}
        if self.split is not None:
            # A parameter of the pattern with such a name wins: old patterns have parameters with these names.
            known |= {name: getattr(self.split, name) for name in OF_SPLIT if name not in self.params}
        return known

    # ---- values ---------------------------------------------------------------------------------------------------

    def value(self, node: SyntaxNode) -> Value:
        """Return the value of an expression; raise Mistake (E101, E111, E113) if it has none."""
        if self._depth >= MAX_DEPTH:
            raise mistake("E113", "an expression nested too deeply", node.span, f"over {MAX_DEPTH} levels")
        self._depth += 1
        try:
            found = _OPERATIONS[node.kind](self, node)
        finally:
            self._depth -= 1
        return self._check_bits(found)

    def _number(self, node: SyntaxNode) -> Value:
        try:
            amount = parse_number(node.children[0].text)
        except ValueError as error:
            raise mistake("E113", "a number too large to read", node.span, str(error)) from None
        factor, dimension = UNITS[node.children[1].text] if len(node.children) > 1 else (Fraction(1), COUNT)
        return Value(amount * factor, dimension, node.span)

    def _reference(self, node: SyntaxNode) -> Value:
        name = node.text[1:]
        if name in self._builtins():
            return Value(Fraction(self._builtins()[name]), COUNT, node.span)
        if name not in self._values:
            param = self.find_param(node.span)
            try:
                tree = self._follow_param(node.span, lambda value: SyntaxNode("", value, (parse("sum", value),)))
            except Mistake as error:
                if error.diagnostic.code != "E003":
                    raise
                raise mistake(
                    "E111", f"`{node.text}` is not a quantity", node.span, "a quantity is needed here",
                    more=[Label(param.value, "its value")],
                ) from None  # fmt: skip
            self._active.append(name)
            try:
                self._values[name] = self.value(tree.only_child)
            finally:
                self._active.pop()
        self.used.add(name)
        found = self._values[name]
        return Value(found.amount, found.dimension, node.span)

    def _negative(self, node: SyntaxNode) -> Value:
        inner = self.value(node.children[1])
        return Value(-inner.amount, inner.dimension, node.span)

    def _sum(self, node: SyntaxNode) -> Value:
        total = self.value(node.children[0])
        for operator, operand in zip(node.children[1::2], node.children[2::2], strict=True):
            term = self.value(operand)
            if term.dimension != total.dimension:
                what = "add" if operator.kind == "PLUS" else "subtract"
                raise quantities.dimension_mistake(f"cannot {what} {term.dimension} and {total.dimension}", term, total)
            amount = total.amount + (term.amount if operator.kind == "PLUS" else -term.amount)
            total = self._check_bits(Value(amount, total.dimension, quantities.join_spans(total.span, term.span)))
        return total

    def _product(self, node: SyntaxNode) -> Value:
        total = self.value(node.children[0])
        for operator, operand in zip(node.children[1::2], node.children[2::2], strict=True):
            factor = self.value(operand)
            span = quantities.join_spans(total.span, factor.span)
            if operator.kind == "STAR":
                amount, power = total.amount * factor.amount, 1
            elif factor.amount == 0:
                raise mistake("E113", "division by zero", factor.span, "this is 0")
            else:
                amount, power = total.amount / factor.amount, -1
            dimension = quantities.combine_dimensions(total.dimension, factor.dimension, power)
            total = self._check_bits(Value(amount, dimension, span))
        return total

    def _check_bits(self, value: Value) -> Value:
        if max(value.amount.numerator.bit_length(), value.amount.denominator.bit_length()) > MAX_BITS:
            raise mistake("E113", "a number too large to work with", value.span, f"over {MAX_BITS} bits")
        return value

    def _call(self, node: SyntaxNode) -> Value:
        name, operands = node.children[0].text, [self.value(child) for child in node.children[1:]]
        first = operands[0]
        if name in ("min", "max"):
            for operand in operands[1:]:
                if operand.dimension != first.dimension:
                    message = f"`{name}` of {operand.dimension} and {first.dimension}"
                    raise quantities.dimension_mistake(message, operand, first)
            amounts = [operand.amount for operand in operands]
            return Value(min(amounts) if name == "min" else max(amounts), first.dimension, node.span)
        if len(operands) != 1:
            raise mistake("E003", f"`{name}` takes one value, not {len(operands)}", node.span)
        if name == "log2":
            if first.dimension != COUNT:
                raise mistake("E111", f"`log2` of {first.dimension}", first.span, "a count is needed here")
            if first.amount <= 0:
                raise mistake("E113", f"`log2` of {first}", first.span, "must be above 0")
            return Value(quantities.log2(first.amount), COUNT, node.span)
        if first.dimension not in (COUNT, SIZE):
            raise mistake("E111", f"`{name}` of {first.dimension}", first.span, "a count or a size is needed here")
        whole = math.floor(first.amount) if name == "floor" else math.ceil(first.amount)
        return Value(Fraction(whole), first.dimension, node.span)

    # ---- what settings need ---------------------------------------------------------------------------------------

    def require_dimension(self, node: SyntaxNode, dimension: Dimension) -> Value:
        """Return a value of the dimension that a setting needs; E111 for another one."""
        found = self.value(node)
        if found.dimension != dimension:
            label = f"this is {found.dimension}" + ("; a unit is missing" if found.dimension == COUNT else "")
            hint = _UNIT_HELP.get(dimension, "")
            raise mistake("E111", f"{dimension} is needed, not {found.dimension}", found.span, label, hint=hint)
        return found

    def count(self, node: SyntaxNode, low: int = 1, high: int = MAX_COUNT) -> int:
        """Return a whole number in [low, high]; E111, E112, E113 otherwise."""
        return quantities.whole_number(self.require_dimension(node, COUNT), low, high)

    def size(self, node: SyntaxNode, low: int = 0, high: int = quantities.MAX_SIZE) -> int:
        """Return whole bytes in [low, high]; E111, E112, E113 otherwise."""
        return quantities.whole_number(self.require_dimension(node, SIZE), low, high)

    def seconds(self, node: SyntaxNode, low: float = 0.0) -> float:
        """Return seconds, at least `low`; E111, E113 otherwise."""
        found = self.require_dimension(node, TIME)
        if not low <= found.amount <= quantities.MAX_SECONDS:
            raise quantities.range_mistake(found, f"{low:g} s to {quantities.MAX_SECONDS:_} s")
        quantities.refuse_tiny(found)
        return float(found.amount)

    def quantity(self, node: SyntaxNode, dimension: Dimension) -> Distribution:
        """Return the value or distribution of a `quantity` node, clipped or not; E111, E112, E113."""
        return quantities.read_distribution(self.require_dimension, *self._draw_source(node), dimension)

    def _draw_source(self, node: SyntaxNode) -> tuple[SyntaxNode, SyntaxNode | None]:
        """Return the node that a `quantity` draws from and the node that clips it, or None.

        If a parameter gives the quantity, both may be in the text of the parameter.
        """
        source, clip = node.children[0], node.find("clip")
        if source.kind == "param_ref" and source.text[1:] not in self._builtins():
            inner, inner_clip = self._follow_param(
                source.span, lambda value: self._draw_source(parse("quantity", value))
            )
            if clip and inner_clip:
                raise mistake("E003", f"`{source.text}` is clipped already", clip.span)
            if inner.kind == "distribution" or inner_clip:
                return inner, inner_clip or clip
        return source, clip

    # ---- parameters -----------------------------------------------------------------------------------------------

    def param_value(self, param: Param) -> Value:
        """Return the value of a parameter; raise Mistake if it is no quantity."""
        if param.value not in self._evaluated:
            self._evaluated[param.value] = self.value(parse("sum", param.value))
        return self._evaluated[param.value]

    def check_param(self, param: Param) -> None:
        """Check a new value: E111 for another dimension than the default, E113 outside of the domain."""
        default = self.kind_of(param.default)
        given = default if param.value is param.default else self.kind_of(param.value)
        if default is not None and given is not None and default != given:
            raise mistake(
                "E111",
                f"`{param.name}` is {default}, not {given}",
                param.value,
                f"this is {given}",
                more=[Label(param.default, f"the default is {default}")],
            )
        domain = param.domain
        if domain is None:
            return
        if domain.kind == "one_of":
            accepted = [" ".join(choice.text.split()) for choice in domain.children]
            texts = {
                " ".join(place.text.split()) for place in (param.value, follow_reference(self.params, param.value))
            }
            if texts.isdisjoint(accepted) and not self._is_in_domain(param, domain):
                raise _domain_mistake(param, domain, f"`{param.value.text}`", "the values it may have")
            return
        low, high = (self.value(child) for child in domain.children)
        found = self.param_value(param)
        if found.dimension != low.dimension or low.dimension != high.dimension:
            message = f"`{param.name}` is {found.dimension}, its domain is {low.dimension}"
            raise quantities.dimension_mistake(message, found, low)
        if not low.amount <= found.amount <= high.amount:
            raise _domain_mistake(param, domain, f"{found}", f"{low} to {high}")

    def has_kind_of(self, param: Param, text: str) -> bool:
        """Return whether a text has the dimension that the default of a parameter has."""
        default = self.kind_of(param.default)
        return default is not None and self.has_dimension(text, (default,))

    def has_dimension(self, text: str, dimensions: Collection[Dimension]) -> bool:
        """Return whether a text is a quantity of one of these dimensions."""
        return self.kind_of(SourceText("", text).span(0, len(text))) in dimensions

    def _is_in_domain(self, param: Param, domain: SyntaxNode) -> bool:
        try:
            found = self.value(parse("sum", param.value))
            choices = [self.value(parse("sum", choice.span)) for choice in domain.children]
        except Mistake:
            return False
        return any((choice.amount, choice.dimension) == (found.amount, found.dimension) for choice in choices)

    def kind_of(self, span: Span) -> Dimension | None:
        """Return the dimension of a quantity or distribution; None for another phrase, or a broken one."""
        try:
            quantity = parse("quantity", span)
            node = quantity.children[0]
            found = self.value(node.children[1] if node.kind == "distribution" else node)
        except Mistake:
            return None
        if node.kind != "distribution" and len(quantity.children) == 1:
            self._evaluated[span] = found  # avoids a second parse: long sums take most of the time of a long file
        return found.dimension


def _domain_mistake(param: Param, domain: SyntaxNode, value: str, accepted: str) -> Mistake:
    more = [Label(domain.span, accepted)]
    return mistake("E113", f"`{param.name}` cannot be {value}", param.value, "not in the domain", more=more)


_UNIT_HELP: Final = {SIZE: "sizes are written as 4 KiB or 1.5 MB", TIME: "times are written as 10 ms, 1.5 s or 2 min"}
_OPERATIONS: Final[dict[str, Callable[[Scope, SyntaxNode], Value]]] = {
    "number": Scope._number,
    "param_ref": Scope._reference,
    "negative": Scope._negative,
    "sum": Scope._sum,
    "product": Scope._product,
    "call": Scope._call,
}
