"""The answer of a comparison: which variant to use and by how much, or why nothing can be said."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dliosim.compare.result import ComparisonAnswer, Outcome, VariantResult
from dliosim.compare.statistics import FEWEST, Choice, choose_variant
from dliosim.measure.answers.advice import command_line, leave_memory
from dliosim.measure.answers.sources import share_source
from dliosim.measure.answers.validity import CORE_WAIT_LIMIT
from dliosim.measure.results.machine import MEMORY_KINDS, SERVER_KINDS
from dliosim.measure.results.run_summary import Advice, Reason
from dliosim.measure.results.verdicts import CANNOT_SAY, NO_STORAGE

USE = "use"
EITHER = "use any"
NO_DIFFERENCE = "no difference shown"
FEW = "not judged"

#: A difference from the first variant that is too small to matter, if all intervals are within it.
_SMALL = 0.03

#: Share of resident bytes below which a pass began cold.
_COLD = 0.01


def answer_comparison(outcome: Outcome, accepts: Callable[[tuple[str, str]], bool], disk: str = "") -> ComparisonAnswer:
    """Return the answer; `accepts` returns whether the variants can run with one more override.

    `disk` is a directory that is not in memory, as advice for data that are.
    """
    source = _find_source(outcome)
    says_little = outcome.repetitions < FEWEST or _greatest_difference(outcome) <= _SMALL
    choice = None if says_little else choose_variant(outcome.times(), outcome.comparisons)
    found = list(_reasons(outcome, source, choice))
    labels = [one.label for one in outcome.measured]
    lead = choice.lead if choice else None
    return ComparisonAnswer(
        found[0][0] if found else USE,
        tuple(reason for _, reason in found),
        labels[choice.use] if choice else None,
        labels[choice.against] if choice else None,
        lead.ratio if lead else None,
        lead.low if lead else None,
        lead.high if lead else None,
        tuple(labels[one] for one in choice.tied) if choice else (),
        tuple(labels[one] for one in choice.ahead) if choice else (),
        source,
        tuple(_limits(outcome, source)),
        tuple(_advise(outcome, source, found[0][0] if found else USE, accepts, disk)),
    )


def _reasons(outcome: Outcome, source: str, choice: Choice | None) -> Iterator[tuple[str, Reason]]:
    """Yield why nothing can be said, each with its verdict; the most important first."""
    if _are_all_in_memory(outcome):
        yield NO_STORAGE, Reason("memory_file_system")
    if outcome.repetitions < FEWEST:
        yield FEW, Reason("few_repetitions", {"repetitions": outcome.repetitions, "least": FEWEST})
    elif _is_unequal_work(outcome):
        yield FEW, Reason("unequal_work")
    elif (most := _greatest_difference(outcome)) <= _SMALL:
        yield from ((NO_STORAGE, reason) for reason in _memory_reasons(outcome, source))
        yield EITHER, Reason("small_difference", {"share": most, "label": outcome.measured[0].label})
        return
    elif choice is None:
        smallest = min((one.smallest for one in outcome.comparisons if one.smallest), default=1.0)
        yield NO_DIFFERENCE, Reason("no_difference", {"repetitions": outcome.repetitions, "smallest": smallest})
    yield from ((NO_STORAGE, reason) for reason in _memory_reasons(outcome, source))
    waited = _longest_core_wait(outcome)
    if waited >= CORE_WAIT_LIMIT and choice and (choice.lead.low or 1.0) * (1 - waited) <= 1:
        yield CANNOT_SAY, Reason("core_wait_difference", {"share": waited})
    if any(one.core_wait is None for one in outcome.measured) and outcome.environment.is_oversubscribed:
        yield CANNOT_SAY, Reason("oversubscribed")


def _is_unequal_work(outcome: Outcome) -> bool:
    """Return whether some variants may leave samples compressed that the library of others decompresses."""
    return any(one.is_left_compressed for one in outcome.measured) and not all(
        one.raw_format for one in outcome.measured
    )


def _greatest_difference(outcome: Outcome) -> float:
    """Return the greatest difference from the first variant that is within an interval, as a share of its time."""
    ends = [max(one.high or 1.0, 1 / (one.low or 1.0)) for one in outcome.comparisons]
    return max(ends, default=1.0) - 1


def _longest_core_wait(outcome: Outcome) -> float:
    """Return the longest wait for a core of any variant, as a share of its time; 0 if it is not counted."""
    return max((one.core_wait or 0.0 for one in outcome.measured), default=0.0)


def _memory_reasons(outcome: Outcome, source: str) -> Iterator[Reason]:
    """Yield why the difference may be one of memory and not of storage."""
    if _are_all_in_memory(outcome) or source == "modelled":  # the first reason of all, and none
        return
    if not outcome.caches and (unsynced := [one.label for one in outcome.measured if not _is_synced(one)]):
        yield Reason("unsynced", {"labels": tuple(unsynced)})
    elif source == "memory":
        yield Reason("page_cache")
    elif source == "mixed":
        least, label = min((one.median("device_share") or 0.0, one.label) for one in outcome.measured)
        yield Reason("partly_from_device", {"least": least, "label": label})
    elif source == "unknown" and outcome.caches and not all(map(_is_known_cold, outcome.measured)):
        yield Reason("uncounted_passes")


def _are_all_in_memory(outcome: Outcome) -> bool:
    """Return whether a file system in memory has the data of all variants."""
    return all(_is_on(outcome, one, MEMORY_KINDS) for one in outcome.measured)


def _is_known_cold(one: VariantResult) -> bool:
    resident = one.median("resident_share")
    return one.cache == "off" or (one.epochs == 1 and resident is not None and resident < _COLD)


def _find_source(outcome: Outcome) -> str:
    sources = {_variant_source(outcome, one) for one in outcome.measured}
    return sources.pop() if len(sources) == 1 else "unknown" if "unknown" in sources else "mixed"


def _variant_source(outcome: Outcome, one: VariantResult) -> str:
    if outcome.modelled:
        return "modelled"
    if _is_on(outcome, one, MEMORY_KINDS) or not (outcome.caches or _is_synced(one)):
        return "memory"
    share = 1.0 if not outcome.caches else one.median("device_share")
    return "unknown" if share is None else share_source(share)


def _is_synced(one: VariantResult) -> bool:
    """Return whether a save ends when its bytes are on storage."""
    return bool(one.median("file_sync_seconds"))


def _is_on(outcome: Outcome, one: VariantResult, kinds: frozenset[str]) -> bool:
    return outcome.environment.is_stored_on(one.root, kinds)


def _limits(outcome: Outcome, source: str) -> Iterator[Reason]:
    """Yield what such a comparison cannot show, variants that did not run first."""
    yield from (
        Reason("not_run", {"label": one.label, "error": " ".join(one.reason.split())}) for one in outcome.not_run
    )
    if any(one.raw_format == "hdf5" and one.api == "posix" for one in outcome.measured):
        yield Reason("without_h5py")
    waited = _longest_core_wait(outcome)
    if waited >= CORE_WAIT_LIMIT:
        yield Reason("core_wait_included", {"share": waited})
    if outcome.nodes == 1 and any(one.api == "mpi-collective" for one in outcome.measured):
        is_local = source != "unknown" and not any(_is_on(outcome, one, SERVER_KINDS) for one in outcome.measured)
        yield Reason("one_node_collective", {"is_local": is_local})


def _advise(
    outcome: Outcome, source: str, verdict: str, accepts: Callable[[tuple[str, str]], bool], disk: str
) -> Iterator[Advice]:
    """Yield what to do next; of changes by -D only those that the variants accept."""
    in_memory = [one for one in outcome.measured if _is_on(outcome, one, MEMORY_KINDS)]
    was_busy = _longest_core_wait(outcome) >= CORE_WAIT_LIMIT
    # Fewer ranks or readers would leave each a core; else other work had it.
    frees_cores = outcome.environment.is_oversubscribed or _has_readers(outcome)
    if in_memory:
        yield leave_memory(outcome, disk if all(one.root == "data" for one in in_memory) else "")
    elif _is_unequal_work(outcome) and accepts(decoded := (f"{outcome.what}.decode", "on")):
        yield Advice("decompress_all", command=command_line(outcome, "=".join(decoded)))
    elif verdict == FEW and outcome.repetitions < FEWEST:
        yield Advice("repeat_more", command=command_line(outcome, option=("--repeat", "8")))
    elif cold := _read_from_storage(outcome, source, accepts):
        yield cold
    elif verdict == CANNOT_SAY or (was_busy and frees_cores):
        yield _free_cores(outcome)
    elif verdict == NO_DIFFERENCE:
        more = ("--repeat", str(4 * outcome.repetitions))
        yield Advice("repeat_for_half", {"was_busy": was_busy}, command_line(outcome, option=more))


def _read_from_storage(outcome: Outcome, source: str, accepts: Callable[[tuple[str, str]], bool]) -> Advice | None:
    """Return how passes read from the device; None if they do, or if nothing more is known to help."""
    if source == "device" or not outcome.caches:
        return None
    once, cold = (f"{outcome.what}.epochs", "1"), ("--caches", "cold")
    if any(one.epochs > 1 for one in outcome.measured) and accepts(once):
        return Advice("single_epochs", command=command_line(outcome, "=".join(once), option=cold))
    if outcome.caches == "warm":
        return Advice("cold_caches", command=command_line(outcome, option=cold))
    return None


def _has_readers(outcome: Outcome) -> bool:
    return any(one.median("reader_core_wait_share") is not None for one in outcome.measured)


def _free_cores(outcome: Outcome) -> Advice:
    """Return how each rank gets a core of its own."""
    environment = outcome.environment
    if environment.is_oversubscribed:
        fewer = environment.cores_per_node * outcome.nodes
        return Advice("core_per_rank", command=command_line(outcome, ranks=fewer))
    return Advice("wait_for_quiet", {"has_readers": _has_readers(outcome)})
