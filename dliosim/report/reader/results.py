"""results.json read back into the figures that it was written from."""

from __future__ import annotations

from dliosim.measure.aggregate import Latencies
from dliosim.measure.epoch_summaries import BoundShares, EpochSummary, TimeSpread, VerbSummary
from dliosim.measure.histogram import Histogram, Quantiles
from dliosim.measure.machine import Environment, FileSystem
from dliosim.measure.phase import LoopProgress, PartialProgress, PhaseSummary
from dliosim.measure.run_summary import ExpectationResult, RunSummary
from dliosim.model.job import MAX_RANKS
from dliosim.report.reader.fields import Fields
from dliosim.report.results import SCHEMA_VERSION

_MAX_PATTERN = 4 << 20


def parse_run(results: Fields) -> tuple[RunSummary, dict[str, Latencies]]:
    """Return the content of results.json, and for each loop title the latencies of its epochs after the first together.

    Some fields are not in the file and stay empty: histograms (the latencies replace them; older files do not have
    these, either), and `steady_seconds` and `steady_samples`, which are 0. UsageError where the file is wrong.
    """
    version = results.whole("schema_version")
    if version != SCHEMA_VERSION:
        raise results.field_error("schema_version", f"is {version}, and this dliosim reads {SCHEMA_VERSION}")
    ranks, null = results.whole("ranks"), results.flag("null")
    if not 1 <= ranks <= MAX_RANKS:
        raise results.field_error("ranks", f"is not between 1 and {MAX_RANKS}")
    phases = results.child_list("phases")
    run = RunSummary(
        name=results.text("name"),
        title=results.text("title"),
        pattern=results.text("pattern", _MAX_PATTERN, lines=True),
        overrides=results.pairs("overrides"),
        digest=results.text("digest"),
        ranks=ranks,
        nodes=results.whole("nodes"),
        environment=parse_environment(results.child("environment")),
        started=results.text("started"),
        seconds=results.number("seconds"),
        phases=tuple(_phase(one, ranks, null) for one in phases),
        expectations=tuple(map(_expectation, results.child_list("expectations"))),
        arguments=results.texts("arguments"),
        null=null,
        verify=results.flag("verify"),
        mtbf=_positive_seconds(results, "mtbf_seconds"),
        restart_time=_positive_seconds(results, "restart_seconds"),
        partial=_partial(results.child_or_none("partial")) if results.has("partial") else None,
    )
    loops = results.child_list("loops") if results.has("loops") else ()
    return run, {one.text("title"): _latencies(one) for one in loops}


def _partial(found: Fields | None) -> PartialProgress | None:
    if found is None:
        return None
    loops = (
        LoopProgress(one.text("name"), one.whole("epochs_done"), one.whole_or_none("epochs"))
        for one in found.child_list("loops")
    )
    return PartialProgress(found.text("signal"), found.whole("verbs_done"), found.whole("verbs"), tuple(loops))


def parse_environment(found: Fields) -> Environment:
    """Return the machine and the libraries, as results.json and compare.json have them."""
    return Environment(
        mpi_library=found.text("mpi_library"),
        cores_per_node=found.whole("cores_per_node"),
        ranks_per_node=found.whole("ranks_per_node"),
        memory_per_node=found.whole("memory_per_node"),
        load_average=found.number("load_average"),
        mpi_io=found.text("mpi_io"),
        file_systems=tuple(
            FileSystem(*(one.text(key) for key in ("root", "directory", "kind", "options", "striping")))
            for one in found.child_list("file_systems")
        ),
        details=found.text_pairs("details"),
    )


def parse_quantiles(found: Fields | None) -> Quantiles | None:
    """Return quantiles in seconds; null stands for a quantile above the range of histograms, which becomes inf."""
    if found is None:
        return None
    known = (found.number_or_none(key) for key in ("p50", "p90", "p99", "p999", "max"))
    return Quantiles(*(float("inf") if value is None else value for value in known))


def _phase(found: Fields, ranks: int, null: bool) -> PhaseSummary:
    verb = found.child_or_none("files")
    return PhaseSummary(
        name=found.text("name"),
        kind=found.text("kind"),
        seconds=found.number("seconds"),
        epochs=tuple(_epoch(one, ranks, null) for one in found.child_list("epochs")),
        verb=None if verb is None else _verb(verb, ranks),
        resident_share=found.number_or_none("resident_share"),
        null_seconds=found.number_or_none("null_seconds"),
        api=found.text_or_none("api"),
        cache=found.text_or_none("cache"),
        prefetch=found.whole("prefetch"),
        readers=_whole_or_zero(found, "readers"),
        through=found.text("through") if found.has("through") else "direct",
        hint_set=found.text("hint_set"),
        hints_asked=found.text_pairs("hints_asked"),
        hints_granted=found.text_pairs("hints_granted"),
        notes=found.texts("notes"),
        within=found.text_or_none("within") if found.has("within") else None,
        fsync=found.flag_or_none("fsync") if found.has("fsync") else None,
        commit=found.text_or_none("commit") if found.has("commit") else None,
        how=found.text("how") if found.has("how") else "",
        root=found.text_or_none("root") if found.has("root") else None,
        part_of=found.text("part_of") if found.has("part_of") else "",
    )


def _epoch(found: Fields, ranks: int, null: bool) -> EpochSummary:
    bound = found.child_or_none("bound_by")
    return EpochSummary(
        epoch=found.whole("epoch"),
        ranks=ranks,
        steps=found.whole("steps"),
        fewest_steps=found.whole("fewest_steps"),
        samples=found.whole("samples"),
        bytes=found.whole("bytes"),
        bytes_moved=found.whole("bytes_moved"),
        calls=found.whole("calls"),
        opens=found.whole("opens"),
        seconds=found.number("seconds"),
        loop_seconds=found.number("loop_seconds"),
        steady_seconds=0.0,
        steady_samples=0,
        utilization=found.number_or_none("utilization"),
        utilization_min=found.number_or_none("utilization_min"),
        utilization_max=found.number_or_none("utilization_max"),
        data_wait_seconds=_spread(found.child("data_wait_seconds")),
        io_busy_seconds=_spread(found.child("io_busy_seconds")),
        open_seconds=_spread(found.child("open_seconds")),
        view_seconds=_spread(found.child("view_seconds")),
        compute_seconds=_spread(found.child("compute_seconds")),
        sync_wait_seconds=_spread(found.child("sync_wait_seconds")),
        arrival_wait_seconds=_spread(found.child("arrival_wait_seconds")),
        checkpoint_seconds=_spread(found.child("checkpoint_seconds")),
        processing_seconds=_spread_or_zero(found, "processing_seconds"),
        tool_seconds=_spread(found.child("tool_seconds")),
        decode_seconds=_spread_or_zero(found, "decode_seconds"),
        preprocess_seconds=_spread_or_zero(found, "preprocess_seconds"),
        batch_latency=Histogram(),
        call_latency=Histogram(),
        request_latency=Histogram(),
        bound_by=None if bound is None else _parse_bound_shares(bound),
        slowest_rank=found.whole_or_none("slowest_rank"),
        slowest_rank_share=found.number_or_none("slowest_rank_share"),
        least_sync_wait_seconds=found.number_or_none("least_sync_wait_seconds"),
        oversleep_share=found.number_or_none("oversleep_share", least=-1.0),
        amplification=found.number_or_none("amplification"),
        storage_amplification=found.number_or_none("storage_amplification"),
        depth=found.number_or_none("depth"),
        dlio_au=found.number_or_none("dlio_au", least=-1e24),
        dlio_samples_per_second=found.number_or_none("dlio_samples_per_second", least=-1e24),
        order_hash=_parse_hash(found, "order_hash"),
        extent_hash=_parse_hash(found, "extent_hash"),
        null=null,
        null_seconds=found.number_or_none("null_seconds"),
        unchecked_bytes=_whole_or_zero(found, "unchecked_bytes"),
        distinct_bytes=_count_or_none(found, "distinct_bytes"),
        content_seconds=_spread_or_zero(found, "content_seconds"),
        core_wait_seconds=_spread_or_none(found, "core_wait_seconds"),
        reader_core_wait_seconds=_spread_or_none(found, "reader_core_wait_seconds"),
        flush_steps=_whole_or_zero(found, "flush_steps"),
        flush_step_seconds=_number_or_none(found, "flush_step_seconds"),
        flush_data_wait_seconds=_number_or_none(found, "flush_data_wait_seconds"),
        clear_steps=_whole_or_zero(found, "clear_steps"),
        clear_step_seconds=_number_or_none(found, "clear_step_seconds"),
        clear_data_wait_seconds=_number_or_none(found, "clear_data_wait_seconds"),
    )


def _latencies(loop: Fields) -> Latencies:
    kinds = ("batch", "call", "request")
    return Latencies(*(parse_quantiles(loop.child_or_none(f"{kind}_latency_seconds")) for kind in kinds))


def _verb(found: Fields, ranks: int) -> VerbSummary:
    return VerbSummary(
        ranks=ranks,
        bytes=found.whole("bytes"),
        bytes_moved=found.whole_or_none("bytes_moved"),
        files=found.whole("files"),
        calls=found.whole_or_none("calls"),
        opens=found.whole("opens"),
        seconds=found.number("seconds"),
        call_seconds=_spread(found.child("call_seconds")),
        content_seconds=_spread(found.child("content_seconds")),
        encode_seconds=_spread_or_zero(found, "encode_seconds"),
        send_seconds=_spread(found.child("send_seconds")),
        open_seconds=_spread(found.child("open_seconds")),
        view_seconds=_spread(found.child("view_seconds")),
        file_sync_seconds=_spread(found.child("file_sync_seconds")),
        commit_seconds=_spread_or_zero(found, "commit_seconds"),
        directory_sync_seconds=_spread_or_zero(found, "directory_sync_seconds"),
        manifest_seconds=_spread_or_zero(found, "manifest_seconds"),
        rename_seconds=_spread(found.child("rename_seconds")),
        delete_seconds=_spread(found.child("delete_seconds")),
        serialize_seconds=_spread_or_zero(found, "serialize_seconds"),
        plan_seconds=_spread_or_zero(found, "plan_seconds"),
        broadcast_seconds=_spread_or_zero(found, "broadcast_seconds"),
        stall_seconds=_spread_or_zero(found, "stall_seconds"),
        wait_seconds=_spread_or_zero(found, "wait_seconds"),
        stage_seconds=_spread_or_zero(found, "stage_seconds"),
        flush_seconds=_spread_or_zero(found, "flush_seconds"),
        drain_seconds=_spread_or_zero(found, "drain_seconds"),
        partner_seconds=_spread_or_zero(found, "partner_seconds"),
        call_latency=Histogram(),
        resident_bytes=found.whole("resident_bytes"),
        examined_bytes=found.whole("examined_bytes"),
        drain_bytes=_whole_or_zero(found, "drain_bytes"),
        partner_bytes=_whole_or_zero(found, "partner_bytes"),
        distinct_bytes=_count_or_none(found, "distinct_bytes"),
        read_call_bytes=_count_or_none(found, "read_call_bytes"),
        device_bytes=_count_or_none(found, "device_bytes"),
    )


def _expectation(found: Fields) -> ExpectationResult:
    return ExpectationResult(
        text=found.text("text"),
        measured=found.number_or_none("measured"),
        unit=found.text("unit"),
        held=found.flag("held"),
        over=found.text("over"),
        reported_only=found.text_or_none("reported_only"),
    )


def _spread(found: Fields) -> TimeSpread:
    # Tool time is a remainder, and may be slightly below 0.
    return TimeSpread(*(found.number(key, least=-1e24) for key in ("mean", "min", "max")))


def _spread_or_zero(found: Fields, key: str) -> TimeSpread:
    """Return a time; 0 for results of earlier versions, which do not have it."""
    return _spread(found.child(key)) if found.has(key) else TimeSpread(0.0, 0.0, 0.0)


def _spread_or_none(found: Fields, key: str) -> TimeSpread | None:
    """Return a time; None where the kernel does not count it, and for results of earlier versions."""
    one = found.child_or_none(key) if found.has(key) else None
    return None if one is None else _spread(one)


def _whole_or_zero(found: Fields, key: str) -> int:
    """Return a count; 0 for results of earlier versions, which do not have it."""
    return found.whole(key) if found.has(key) else 0


def _count_or_none(found: Fields, key: str) -> int | None:
    """Return a count; None for results of earlier versions, which do not know it."""
    return found.whole_or_none(key) if found.has(key) else None


def _number_or_none(found: Fields, key: str) -> float | None:
    return found.number_or_none(key) if found.has(key) else None


def _positive_seconds(found: Fields, key: str) -> float | None:
    """Return seconds from the command line, if they were given; UsageError for 0, as they are divided by."""
    value = _number_or_none(found, key)
    if value == 0:
        raise found.field_error(key, "is not above 0")
    return value


def _parse_bound_shares(found: Fields) -> BoundShares:
    return BoundShares(
        storage=found.number("storage"),
        compute=found.number("compute"),
        tool=found.number("tool"),
        arrivals=found.number("arrivals"),
        decode=found.number("decode") if found.has("decode") else 0.0,
    )


def _parse_hash(found: Fields, key: str) -> int:
    text = found.text(key)
    if len(text) != 16 or not set(text) <= set("0123456789abcdef"):
        raise found.field_error(key, "is not 16 hexadecimal digits")
    return int(text, 16)
