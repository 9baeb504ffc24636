"""Figures in words: the comments of their declarations."""

from __future__ import annotations

import inspect
import re

from dliosim.model import EXPECTABLE

#: Words of the first lines of a run that are no names of figures.
_OF_ANSWERS = {
    "busy": "the share of a loop's time in which ranks computed as long as the pattern asks",
    "oversleep": "the share of a loop's time in which ranks computed longer than asked, as a sleep ended late",
    "hidden": "the share of a loop's time in which steps would have waited for reads, if ranks had not waited for "
    "something else: for a rank that still read, or in a sync while readers read",
    "tool": "the share of a loop's time that was dliosim's own work",
    "needs": "the bytes/s that the loop must get to reach the goal",
    "got": "the bytes/s that storage gives the steps, if nothing else holds them; got / needs is utilization of "
    "storage alone / goal",
    "goal": "the utilization of storage alone that `expect utilization of LOOP at least X` asks for, else 90 %",
    "storage alone": "the time of steps with storage that needs no time / their time with this one; waits for other "
    "ranks and for a core are in neither",
    "held": "the share of the whole run in which saves or restores held the ranks",
    "feeds": "storage reaches the goal: the 95 % interval over the epochs that count is not below it",
    "does not feed": "storage does not reach the goal: the 95 % interval over the epochs that count is below it",
    "too close to say": "the goal is within the 95 % interval over the epochs that count, or waits for a core may be "
    "what is missing",
    "not asked": "the loop has no compute or reads nothing, so there is a rate, and no yes or no",
    "not a storage result": "memory gave the bytes, or may have, or nothing was read",
    "every": "with `--mtbf`: how often it is best to save each checkpoint",
    "mtbf": 'the mean time between failures of the whole job, `--mtbf "6 h"`: the run says how often to save',
    "try": "what to do next, a command line that can be pasted",
}


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


def describe_answer_word(word: str) -> str:
    """Return what a word of a run's first lines says; empty for other words."""
    name = word.lower().removeprefix("--").removeprefix("utilization of ")
    meaning = _OF_ANSWERS.get(name)
    return f"`{name}` is a word of a run's first lines: {meaning} (docs/answer.md)." if meaning else ""


def describe_figure(name: str) -> str:
    """Return what a figure of an epoch is and where it is seen; empty for other names."""
    from dliosim.measure.figures.epoch_summaries import EpochSummary

    found = EXPECTABLE.get(name)
    meaning = read_comments(EpochSummary).get(name.lower().replace(" ", "_").replace("-", "_"))
    lines = [f"`{name}` is a figure of each epoch: {meaning}.\n`dliosim report RESULTS` shows it."] if meaning else []
    if found:
        lines.append(f"In a pattern, write `expect {name} {found.example}`: {found.meaning}.")
    return "\n".join(lines)
