"""Sentences of answers: the text of each kind of reason and advice, for runs, comparisons, plans and pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from dliosim.measure.answers.validity import LEAST_SECONDS, LEAST_STEPS
from dliosim.measure.results.run_summary import Advice, Reason
from dliosim.readable import count, long_time, number, percent, seconds, size

#: What else than storage does to a verdict, after the sentence about it.
_EFFECT = "[, which may explain it{may_explain:?}][: without it, the goal may be within the 95 % interval{may_hide:?}]"
_ALSO_SLOW = "[storage is too slow; {is_too_small:?}]"
_INTERVAL = "[: {low:%3} to {high:%3}]"
_UNCOUNTED = "reads are not counted[ while a save drains{drains:?}]; "

#: Sentence of each kind. `{name:form}` is a value in one of `_FORMS`, with its digits; `{steps:#step}` counts things.
#: A part in brackets is there if it has all of its values, and none is false, empty or a count of 0.
_SENTENCES = {
    # Reasons: where the bytes came from.
    "nothing_read": "nothing was read (--null)",
    "modelled": "storage {name} is a description: reads waited as it says, no file was read",
    "reads_nothing": "it reads nothing",
    "memory_file_system": "the data are in a file system in memory",
    "page_cache": "all bytes came from the page cache",
    "partly_cached": "the page cache delivered [{least:%2} to ]{most:%2} of the bytes, or may have",
    "sample_cache": "`cache memory` kept all samples",
    "empty_samples": "its samples take no bytes in their files",
    "server": "a server delivered the bytes, perhaps from its memory",
    "uncounted": f"{_UNCOUNTED}{{amount:B3}} may have come from {{memory:B3}} of memory",
    "uncounted_direct": f"{_UNCOUNTED}O_DIRECT bypassed the page cache",
    "uncounted_beyond_memory": f"{_UNCOUNTED}memory holds less than 1 % of {{amount:B3}}",
    "uncounted_cold": f"{_UNCOUNTED}the page cache was cold before",
    "own_cache": "this file system may have a cache of its own",
    # Reasons: why there is no verdict, or a doubtful one.
    "no_compute": "it has no compute, so no accelerator waits for it",
    "requests": "requests arrive on a schedule: their latency shows whether storage keeps up",
    "single_step": "no epoch has a step after the first",
    "all_prefetched": (
        "an epoch has {steps:#step} after the first, and {batches:#batch,batches} are prefetched before it"
    ),
    "too_short": (
        "{steps:#step} take {time:s2} if only storage counts; "
        f"a verdict needs {LEAST_STEPS} steps and {seconds(LEAST_SECONDS, 2)}"
    ),
    "memory_short": "memory is short: {free:B2} of {whole:B2} free, {read:B3} read for {asked:B3} asked",
    "goal_in_interval": f"the goal is within the 95 % interval of this run{_INTERVAL}",
    "error_unknown": "the error of one epoch with fewer than two syncs is unknown",
    "core_wait": (
        f"{_ALSO_SLOW}[readers{{by_readers:?}}][ranks{{by_ranks:?}}] waited {{share:%2}} of the loop for a core"
        f"[ (load average before: {{load:n2}} on {{cores:#core}})]{_EFFECT}{_INTERVAL}"
    ),
    "core_wait_uncounted": (
        f"{_ALSO_SLOW}there are more ranks than cores, and the kernel does not count waits for a core"
        f"{_EFFECT}{_INTERVAL}"
    ),
    "late_compute": f"{_ALSO_SLOW}compute was late by {{share:%2}} of the time{_EFFECT}",
    "late_wakeups": "compute took up to {share:%3} longer than asked",
    "read_checked": "steps also checked what they read (--verify)",
    # Reasons and limits of comparisons.
    "few_repetitions": "{repetitions:#repetition}: at least {least:n1} are needed",
    "small_difference": "none differs by more than {share:%2} from {label}",
    "no_difference": (
        "every interval includes 1; {repetitions:#repetition} would probably miss a ratio below {smallest:n3}"
    ),
    "unequal_work": (
        "the library decompresses, `through direct` does not: the work is unequal if the files are compressed"
    ),
    "unsynced": "no sync: a save may end before its data reach storage ({labels:list})",
    "partly_from_device": "as little as {least:%2} of the bytes came from the device ({label})",
    "uncounted_passes": "the kernel does not count these reads, and passes may not have been cold",
    "core_wait_difference": "waits for a core took {share:%2} of the loop, and may be the difference",
    "oversubscribed": "there are more ranks than cores: waits for a core may be the difference",
    "not_run": "{label} not run: {error}",
    "without_h5py": "`through direct` reads the samples' bytes in the HDF5 file with POSIX calls, not with h5py",
    "core_wait_included": "up to {share:%2} of the time is waiting for a core, not storage",
    "one_node_collective": "one node[ and a local disk{is_local:?}] cannot show what collective buffering is for",
    # Advice for runs and comparisons.
    "read_data": "read the data",
    "move_data": "put the data on the storage in question: --dir DIR",
    "move_data_to_disk": "put the data on the storage in question, or on this disk",
    "prefetch_less": "use more samples, or fewer batches ahead (`prefetch`)",
    "bypass_cache": "bypass the page cache",
    "exceed_memory": (
        "use far more data than memory[, or the file system underneath, if there is one: --dir DIR{is_stacked:?}]"
    ),
    "exceed_memory_or_drop": "use more data than memory, or `drop caches` before the loop",
    "more_memory": "use nodes with more memory[, or ask about {ranks:#rank} instead]",
    "wait_for_quiet": "repeat this when the machine is quiet[, or with fewer `readers`{has_readers:?}]",
    "other_work": "ranks waited although each has a core: repeat this when the machine is quiet",
    "core_per_rank": "give each rank a core",
    "free_cores": "give each rank its cores: more nodes, {ranks_per_node:#rank} each, or ask about {ranks:#rank}",
    "fewer_readers": "give each reader a core: more nodes, {ranks_per_node:#rank} each, or ask about fewer readers",
    "more_cores": "use a node of {cores:#core} for the rank and its readers",
    "use_posix": "use POSIX calls, which readers make in parallel",
    "read_ahead": "read ahead of the steps",
    "prefetch_more": "let all {readers:#reader} read: `prefetch` keeps no more than {batches:#batch,batches} ahead",
    "more_readers": "read more batches in parallel",
    "find_ranks": "find how many ranks it feeds",
    "faster_storage": "use faster storage: fewer ranks or more readers do not help here",
    "faster_storage_or_cores": "use faster storage, or a node of {cores:#core} for the rank and its readers",
    "measure_epochs": "measure for longer: {epochs:#epoch}",
    "measure_bytes": "measure for longer: {amount:B2} per epoch",
    "measure_more": "measure for longer: more data, or `caches cold each epoch`",
    "count_all_epochs": "bypass the page cache, so that all epochs count",
    "more_epochs": "run {epochs:#epoch}, about {time:t2}",
    "more_counted_epochs": "run more epochs that count: more data than memory, or `caches cold each epoch`",
    "goal_reached": "storage just reaches the goal, within {half:%2}: more epochs would hardly change that",
    "decompress_all": "let all variants decompress",
    "repeat_more": "repeat it more often",
    "repeat_for_half": "four times as many show a difference half as large[, on a quiet machine{was_busy:?}]",
    "single_epochs": "read from storage: one epoch per pass",
    "cold_caches": "read from storage",
}

#: Type of a value in a form, and its text.
_FORMS: dict[str, tuple[Any, Callable[..., str]]] = {
    "": (str, str),
    "?": (bool, lambda _: ""),
    "list": (tuple[str, ...], "; ".join),
    "%": (float, percent),
    "B": (float, size),
    "n": (float, number),
    "s": (float, seconds),
    "t": (float, long_time),
}

_VALUE = re.compile(r"\{(\w+):?([^\d}]*)(\d*)\}")
_PART = re.compile(r"\[([^]]*)\]")


def sentence(reason: Reason) -> str:
    """Return the text of a reason or of advice. Raises KeyError for an unknown kind or a missing value."""

    def keep(part: re.Match[str]) -> str:
        values = [reason.values.get(value[1]) for value in _VALUE.finditer(part[1])]
        return part[1] if all(value or isinstance(value, float) for value in values) else ""

    def write(value: re.Match[str]) -> str:
        name, form, digits = value.groups()
        if form.startswith("#"):
            return count(reason.values[name], *form[1:].split(","))  # type: ignore[arg-type]
        return _FORMS[form][1](reason.values[name], *([int(digits)] if digits else []))

    return _VALUE.sub(write, _PART.sub(keep, _SENTENCES[reason.kind]))


def advice_rows(advice: Sequence[Advice]) -> list[tuple[str, str]]:
    """Return the row of the first advice for the first lines; its command has a line of its own."""
    return [("TRY", f"{sentence(one)}:\n{one.command}" if one.command else sentence(one)) for one in advice[:1]]


def list_values(kind: str) -> Iterator[tuple[str, Any, bool]]:
    """Yield name and type of each value of a sentence, and whether it is required. Raises KeyError if unknown."""
    required = _PART.sub("", _SENTENCES[kind])
    for value in _VALUE.finditer(_SENTENCES[kind]):
        is_count = value[2].startswith("#")
        yield value[1], int if is_count else _FORMS[value[2]][0], value[0] in required


def plain_content(value: Any) -> Any:
    """Return a dataclass as plain values for JSON, with a `text` next to the kind and values of each reason."""
    if isinstance(value, Reason):
        return {**asdict(value), "text": sentence(value)}
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain_content(getattr(value, one.name)) for one in fields(value)}
    return [plain_content(one) for one in value] if isinstance(value, tuple) else value
