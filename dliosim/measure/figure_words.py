"""Figures in words: the comments of their declarations."""

from __future__ import annotations

import inspect
import re

from dliosim.model import EXPECTABLE


def read_comments(kind: type) -> dict[str, str]:
    """Return what each field of a dataclass means: its comment; of a property the first line of its docstring."""
    found = {
        name: " ".join(line.strip().removeprefix("#: ") for line in comment.splitlines())
        for base in reversed(kind.__mro__[:-1])
        for comment, name in re.findall(r"((?: +#: .*\n)+) +(\w+): ", inspect.getsource(base))
    }
    docs = {name: getattr(one, "__doc__", None) for name, one in vars(kind).items() if name not in found}
    return found | {
        name: " ".join(doc.split("\n\n")[0].split()).removeprefix("Return ").rstrip(".").replace("None", "`null`")
        for name, doc in docs.items()
        if doc
    }


def describe_figure(name: str) -> str:
    """Return what a figure of an epoch is and where it is seen; empty for other names."""
    from dliosim.measure.epoch_summaries import EpochSummary

    found = EXPECTABLE.get(name)
    meaning = read_comments(EpochSummary).get(name.lower().replace(" ", "_").replace("-", "_"))
    lines = [f"`{name}` is a figure of each epoch: {meaning}.\n`dliosim report RESULTS` shows it."] if meaning else []
    if found:
        lines.append(f"In a pattern, write `expect {name} {found.example}`: {found.meaning}.")
    return "\n".join(lines)
