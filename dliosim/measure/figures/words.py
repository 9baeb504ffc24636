"""Descriptions of figures: the comments of their declarations."""

from __future__ import annotations

import inspect
import re

from dliosim.model import EXPECTABLE

#: Words of the first lines of a run that are no names of figures.
_OF_ANSWERS = {
    "busy": "the share of a loop's time in which ranks computed as long as the pattern asks",
    "late wake-ups": "the share of a loop's time in which ranks computed longer than asked, as a sleep ended late",
    "hidden": "the share of a loop's time in which steps would also have waited for reads, if ranks had not waited "
    "for something else, such as a slower rank, or a sync while readers read",
    "tool": "the share of a loop's time that was dliosim's own work",
    "needs": "the bytes/s that the loop must get to reach the goal",
    "got": "the bytes/s that storage gives the steps, if nothing else holds them; got / needs is storage-limited "
    "utilization / goal",
    "goal": "the storage-limited utilization that `expect utilization of LOOP at least X` asks for, else 90 %",
    "storage-limited utilization": "how busy accelerators are if they wait for nothing but storage: the time of steps "
    "with storage that needs no time / their time with this one; waits for other ranks and for a core are in neither",
    "accelerators busy": "the storage-limited utilization: the share of time for which accelerators compute if they "
    "wait for nothing but storage; it is not how busy a disk is",
    "held": "the share of the whole run in which saves or restores held the ranks",
    "feeds": "storage reaches the goal: the 95 % interval over the epochs that count is not below it",
    "does not feed": "storage does not reach the goal: the 95 % interval over the epochs that count is below it",
    "too close to say": "the goal is within the 95 % interval over the epochs that count",
    "cannot say": "waits for a core may explain the distance to the goal, or the difference between variants; or too "
    "little was measured, or memory was short: TRY says how to find out",
    "not asked": "the loop has no compute or reads nothing, so the run gives a rate but no verdict",
    "not a storage result": "memory gave the bytes, or may have, or nothing was read",
    "interval": "with `--mtbf`: how often it is best to save each checkpoint",
    "mtbf": 'the mean time between failures of the whole job, `--mtbf "6 h"`: the run says how often to save',
    "try": "what to do next, a command line that can be pasted",
    "answer": "whether storage feeds the loop: `feeds`, `does not feed`, `too close to say`, "
    "`cannot say`, `not asked` or `not a storage result`",
    "why": "the reason of the answer",
    "storage": "the bytes/s that the loop needs, and those that it got; in LOOP the share of time in which ranks "
    "waited for data",
    "memory": "bytes that came from memory or the page cache, which say nothing about storage",
    "loop": "where the loop's time went, as shares of it",
    "also": "the answers for other loops of the pattern",
    "saves": "how long checkpoints took to save, and what share of the run they held the ranks",
    "restores": "how long checkpoints took to restore",
    "reads": "the share of a loop's time in which ranks waited for data",
    "sync": "the share of a loop's time in which ranks waited for each other at the end of steps",
}

#: Words of plans, of comparisons and of tables that no figure declares.
_OF_TABLES = {
    "needs": "the bytes/s that storage must deliver for the goal",
    "draws": "repetitions of a prediction with other draws, and both ends of what is uncertain",
    "range": "the shortest and the longest time, by what is uncertain about a storage",
    "step": "the predicted time from one step to the next",
    "value": "what `calibrate` found for a setting of a storage",
    "at least": "the lower end of the 95 % interval of what `calibrate` or `saturate` measured",
    "busy with all waits": "utilization with all waits: also those for syncs and for a core",
    "from": "where the bytes came from: device, memory, mixed, unknown (not counted), modelled (no file was read)",
    "passes": "how often `saturate` ran the loop with this number of accelerators",
    "at most": "the upper end of the 95 % interval of what `calibrate` or `saturate` measured",
    "lowest": "the lowest storage-limited utilization of a prediction's draws",
    "highest": "the highest storage-limited utilization of a prediction's draws",
    "rate": "the bytes/s that all ranks would get together",
    "reach": "how busy accelerators can be at most, by the rates of a storage (`--bandwidth`, `--opens`)",
    "reading": "the bytes/s while a step's bytes are read",
    "data": "the bytes that all ranks and each rank read in an epoch",
    "smallest shown": "the smallest ratio that this many passes would show as a difference",
    "use": "which variant to take",
    "equal": "variants whose difference is too small to say which is faster",
    "gb": "the gigabytes that all ranks saved or restored",
    "plan": "the time in which the slowest rank planned what it writes or reads",
    "stage": "the time in which the slowest rank copied its part of a save to buffers",
    "wait": "the time in which the slowest rank waited for an earlier save in the background",
    "ratio": "the rate of a variant / that of the reference",
    "interval": "the 95 % interval of a ratio",
    "asked": "the bytes of samples that steps asked for",
    "from the device": "the bytes that the device of the file system delivered",
    "device / asked": "the bytes that the device delivered / those that steps asked for; below 1 memory gave the rest",
    "moved / asked": "the bytes that read calls moved / those that steps asked for",
    "read() / asked": "the bytes of all read calls of the process, by the kernel / those that steps asked for",
    "asked / time": "the bytes that steps asked for / the time of the loop",
    "two-phase": "whether MPI-IO gathered the reads of ranks at aggregators, which make large calls: `hints two-phase`",
    "stall": "the time for which a save holds the ranks",
    "longest stall": "the longest stall of any pass",
    "flush": "the time in which threads write a save to storage while steps continue, with `async on`",
    "in flight": "calls under way at the same time, on average; of a checkpoint the saves that are not complete",
    "complete after": "the time from the start of a save until its checkpoint is complete",
    "restart": "the time from a failure until the job computes again",
    "young": "the best interval between saves by Young: sqrt(2 * stall * mtbf)",
    "every": "the time of a loop's steps between two saves, as predicted",
    "beyond": "calls of a prediction are more than ten times as large or small as those that described the storage",
    "unsure": "values of a described storage that may be more than 30 % from the truth, as its `uncertain` says",
    "daly": "the best interval between saves by Daly, which corrects Young's for long stalls",
    "save every": "the interval between saves that loses least",
    "saving": "the share of time that saves take with the best interval",
    "work again": "the share of time in which lost work is done again with the best interval",
    "restarting": "the share of time that restarts take with the best interval",
    "lost in all": "the share of time that saves, lost work and restarts take together with the best interval",
    "own interval": "the interval between saves that the pattern has",
    "digest": "16 digits that are the same for patterns that do the same",
    "accelerator": "what a rank stands for: it computes for a given time in each step, and waits for data otherwise",
    "not judged": "an `expect` line that cannot decide: it says its figure and why, and does not fail the run",
    "core wait": "the time in which a rank could run and no core was free",
    "gb/s": "1e9 bytes of samples or files in a second",
    "gb/s asked": "1e9 bytes that steps asked for in a second",
    "bytes / time": "the bytes of a verb / the time of its slowest rank",
    "then drained": "the time of copying a complete save to another root, with `drain to`",
    "cached": "the share of the bytes that were in the page cache before",
    "checkpoints": "the time in which saves held the ranks",
    "processing": "the share of time in which steps decoded and preprocessed by themselves",
    "longest": "the longest time of any run of a verb",
    "flush gb/s": "1e9 bytes that threads wrote in a second of a flush, with `async on`",
    "runs": "how often a verb or a loop ran",
    "measured": "the variant that was ahead in a comparison that cannot say which to use",
    "holds": "the bytes that a data set or checkpoint needs on storage, where they are many",
    "room": "the memory that ranks need but their nodes do not have, and how many nodes would have it",
    "limit": "what a comparison or a prediction cannot show; in a table of predictions, what limits the loop",
    "in calls": "the time of a verb that its calls took",
    "passed to ranks": "the time in which a restore sends what was read to other ranks",
    "samples /s": "samples in a second, over all ranks",
    "read / time": "the bytes that a `convert` read / the time of its slowest rank",
    "lost with it": "the share of time that is lost with the pattern's own interval",
}


def read_comments(kind: type) -> dict[str, str]:
    """Return the meaning of each field of a dataclass: its comment, or the first line of a property's docstring."""
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


def _plain(word: str) -> str:
    return " ".join(word.lower().removeprefix("--").removeprefix("utilization of ").removesuffix(" %").split())


def describe_answer_word(word: str) -> str:
    """Return the meaning of a word in a command's first lines or tables, in any case; empty for other words."""
    name = _plain(word)
    meanings = []
    if name in _OF_ANSWERS:
        meanings.append(f"`{name}` is a word of a run's first lines: {_OF_ANSWERS[name]} (docs/answer.md).")
    if name in _OF_TABLES:
        meanings.append(f"`{name}` is a word of screens and tables: {_OF_TABLES[name]}.")
    quantile = re.fullmatch(r"(?:(batch|call|latency) )?(?:p([0-9.]+)|max)", name)
    if quantile and not meanings:
        what = {"batch": "waits of steps for their batches", "call": "latencies of calls"}.get(quantile[1], "latencies")
        share = f"time that {quantile[2]} % of the {what} are below" if quantile[2] else f"greatest of the {what}"
        meanings.append(f"`{name}` is a column of tables: the {share}.")
    return "\n".join(meanings)


def describe_heading(word: str) -> str:
    """Return the meaning of a column's heading, by the figures that declare it; empty if none does."""
    from dliosim.measure.figures.declaration import result_figures
    from dliosim.measure.figures.epoch_summaries import EpochSummary, VerbSummary

    name = _plain(word)
    for kind, rows in ((EpochSummary, "an epoch"), (VerbSummary, "a save, a restore or another verb")):
        comments = read_comments(kind)
        for one in result_figures(kind):
            if one.heading and name == one.words.lower().removesuffix(" %") and one.name in comments:
                return f"`{one.words}` is a column of tables, for {rows}: {comments[one.name]}."
    return ""


def describe_figure(name: str) -> str:
    """Return the meaning of a figure of an epoch and the tables that show it; empty for other names."""
    from dliosim.measure.figures.epoch_summaries import EpochSummary

    found = EXPECTABLE.get(name)
    meaning = read_comments(EpochSummary).get(name.lower().replace(" ", "_").replace("-", "_"))
    lines = [f"`{name}` is a figure of each epoch: {meaning}.\n`dliosim report RESULTS` shows it."] if meaning else []
    if found:
        lines.append(f"In a pattern, write `expect {name} {found.example}`: {found.meaning}.")
    return "\n".join(lines)
