"""Phrases of settings: each field that a pattern gives declares its line, and the whole language follows from that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Phrase:
    """The text after the keyword of a setting; it annotates the field that the line gives.

    `text` has alternatives with ` | ` between them. Each has words, `[...]` around what may be left out, `rank(s)` for
    a word with a plural, and values with their bounds: COUNT, SIZE, TIME, SIZES and TIMES (which may be distributions),
    PACE (a time or a rate), NAME, PATH. `SIZE>=1 over COUNT<=64 target(s)` is a size of at least a byte, and 1 to 64.

    An alternative without a value stands for None, or for True and False in this order, if the field has such a
    type, and for its own text elsewhere. Several values, or a value and a word in `[...]`, are the first fields of the
    field's dataclass. The comment of the field is its text in docs/reference.md; a last sentence `Default: ...` of it
    is for defaults that the field itself does not have.
    """

    text: str = ""  #: alternatives; empty: the literals of the field, or what `rule` says
    keyword: str = ""  #: first words of the line; empty: the name of the field
    rule: str = ""  #: rule of grammar.lark, if that has one for this phrase; empty: the rule follows from `text`
    blocks: tuple[str, ...] = ()  #: kinds of block that take it; empty: all that have the field
    fixed: str = ""  #: why files that exist already leave nothing to say here; empty: they do not decide it


Count = Annotated[int, Phrase("COUNT")]
Switch = Annotated[bool, Phrase("on | off")]
#: Path relative to a root, which it does not leave
PathBelow = Annotated[str, Phrase("PATH", fixed="their names say where")]
#: Name of a directory given on the command line; `data` is that of `--dir`
Root = Annotated[str, Phrase("NAME")]
