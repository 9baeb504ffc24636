"""Storage and memory that checkpoints need, also those of published models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.errors import PlanError
from dliosim.language.compile import compile_pattern
from dliosim.model import Access, Background, Cadence, Checkpoint, Job, Part, Restore, Split, Workload, Writers
from dliosim.plan.checkpoints.layout import state_files
from dliosim.plan.checkpoints.reshard import lone_reads, shared_reads
from dliosim.plan.forecast.checkpoint_footprint import (
    forecast_restore,
    forecast_save,
    forecast_state,
    restore_bytes,
    storage_of,
)
from dliosim.plan.forecast.forecast import forecast
from tests.plan.forecast.test_forecast import LOOP, workload
from tests.strategies import checkpoints, jobs

PATTERNS = Path(__file__).parents[3] / "patterns"
CHECKPOINT = Checkpoint("c", 1, (Part("w", 1000, "total"),), Writers("file per rank"), Access(), "c", keep=2)


def published(name: str, ranks: int) -> Workload:
    return compile_pattern(PATTERNS / f"{name}.dlio", [("scale", "1")], Job(ranks, ranks // 8))[0]


@pytest.mark.parametrize(
    ("name", "ranks", "parameters", "weights", "optimizer", "files"),
    [
        ("llama3_8b", 8, 8_030_261_248, 14.96, 89.75, {"model": 8, "optimizer": 8}),
        ("llama3_70b", 64, 69_882_617_856, 130.2, 781.0, {"model": 64, "optimizer": 64}),
        ("llama3_405b", 512, 405_853_388_800, 756.0, 4536, {"layer": 1032, "optimizer": 512}),
        ("llama3_1t", 1024, 1_183_035_102_480, 2204, 13221, {"layer": 1048, "optimizer": 1024}),
    ],
)
def test_published_models_come_out_unscaled(
    name: str, ranks: int, parameters: int, weights: float, optimizer: float, files: dict[str, int]
) -> None:
    found = published(name, ranks)
    state = forecast_state(found.checkpoints[0], ranks, 1)
    model = found.checkpoints[0].model
    assert model is not None and model.parameters == parameters
    contents, tensor = dict(state.contents), found.checkpoints[0].split(ranks).tensor
    # Norms are held, and saved, by every tensor-parallel rank where the weights are not flat.
    again = (2 * model.layers + 1) * model.hidden * (tensor - 1) if model.zero < 3 else 0
    assert contents == {"weights": 2 * (parameters + again), "optimizer": 12 * parameters}
    assert [contents["weights"] / 2**30, contents["optimizer"] / 2**30] == pytest.approx([weights, optimizer], rel=1e-3)
    assert dict(state.files) == files
    assert state.writers == ranks


@given(checkpoints, jobs)
def test_contents_and_files_are_all_there_is(checkpoint: Checkpoint, job: Job) -> None:
    files = state_files(checkpoint, checkpoint.split(job.ranks))
    state = forecast_state(checkpoint, job.ranks, 1)
    assert state.bytes == files.total()
    assert sum(count for _, count in state.files) == len(list(files.files()))
    assert state.most == max(files.owner_bytes(rank) for rank in range(job.ranks))


def footprint(checkpoint: Checkpoint, saves: int) -> list[tuple[str, float, int, int]]:
    state = forecast_state(checkpoint, 4, saves)
    return [(one.root, one.bytes, one.files, one.copies) for one in storage_of(checkpoint, state)]


@given(checkpoints, jobs, st.booleans())
def test_what_a_restore_reads_in_all_is_the_sum_of_what_each_rank_is_planned_to(
    checkpoint: Checkpoint, job: Job, once: bool
) -> None:
    files = state_files(checkpoint, checkpoint.split(job.ranks))
    holder = files.split
    read = [fetch for rank in range(job.ranks) for fetch in lone_reads(files, holder, rank)]
    for rank in range(job.ranks):
        if not once or holder.coordinates(rank)[2] == 0:
            read += shared_reads(files, holder, rank)
    assert restore_bytes(files, holder, once) == sum(fetch.block.length for fetch in read)


@pytest.mark.parametrize("sent", [True, False])
def test_calls_of_a_restore_once_are_those_of_its_passes(sent: bool) -> None:
    """Rank 0 needs the end of the first part and the beginning of the next, in one call if both are in one pass."""
    parts = (Part("w", 100, "whole"), Part("o", 60, "per rank"))
    checkpoint = replace(CHECKPOINT, parts=parts, writers=Writers("shared file"), pieces="whole")
    verb = Restore("c", written_by=Split(1, 1, 2), parallel=Split(6, 1, 1), once=True, sent=sent)
    assert forecast_restore(checkpoint, verb, 6, 1).calls.total == (12 if sent else 11)


def test_what_each_rank_kept_for_itself_is_restored_once_by_other_ranks() -> None:
    own = replace(CHECKPOINT, parts=(Part("o", 70, "per rank"), Part("w", 100, "whole")))
    files = state_files(own, Split(1, 1, 6))
    assert restore_bytes(files, Split(1, 1, 4), once=False) == 6 * 70 + 4 * 100
    assert restore_bytes(files, Split(1, 1, 4), once=True) == 6 * 70 + 100


@pytest.mark.parametrize("ranks", [255, 256, 257, 512, 1000])
def test_few_ranks_that_do_something_are_counted_however_many_do_nothing(ranks: int) -> None:
    """Rank 0 writes 24 calls of 4 MiB for 100 MB whole, and reads them for all."""
    access = Access(transfer=1 << 22)
    alone = replace(CHECKPOINT, parts=(Part("w", 100_000_000, "whole"),), writers=Writers("rank", 0), access=access)
    save = forecast_save(alone, ranks, 1)
    assert (save.calls.total, save.calls.maximum, save.calls.estimated) == (24, 24, False)
    restore = forecast_restore(alone, Restore("c", everything=True, once=True), ranks, 1)
    assert (restore.calls.total, restore.bytes.total, restore.opens.total) == (24, 100_000_000, 1)
    assert (restore.files.maximum, restore.files.total, restore.bytes.estimated) == (1, 1, False)
    shared = forecast_restore(alone, Restore("c", once=True), ranks, 1)
    assert (shared.calls.total, shared.bytes.total, shared.files.total) == (24, 100_000_000, 1)
    storm = forecast_restore(alone, Restore("c", everything=True), ranks, 1)
    assert (storm.calls.total, storm.bytes.total, storm.calls.estimated) == (24 * ranks, 10**8 * ranks, False)


def test_calls_of_many_ranks_are_taken_from_ranks_that_save_as_much() -> None:
    parts = (Part("w", 600 * 1000 + 300, "total"),)
    saved = forecast_save(replace(CHECKPOINT, parts=parts, access=Access(transfer=100)), 600, 1)
    # 300 of them save a byte more, and so a call.
    assert saved.calls.total == 300 * 10 + 300 * 11
    assert saved.calls.estimated


@pytest.mark.parametrize(("keep", "saves", "copies"), [(None, 9, 9), (2, 9, 3), (2, 1, 1), (1, 9, 2)])
def test_a_new_checkpoint_is_next_to_those_that_are_kept(keep: int | None, saves: int, copies: int) -> None:
    assert footprint(replace(CHECKPOINT, keep=keep), saves) == [("data", 1000, 4, copies)]


def test_saves_in_flight_are_next_to_those_that_are_kept_and_drained_ones_on_another_root() -> None:
    flying = replace(CHECKPOINT, background=Background(in_flight=3), drain="cold")
    assert footprint(flying, 9) == [("data", 1000, 4, 5), ("cold", 1000, 4, 3)]


def test_partners_keep_everything_once_more_on_the_same_root() -> None:
    assert footprint(replace(CHECKPOINT, partner=1, drain="cold"), 1) == [("data", 2000, 8, 1), ("cold", 1000, 4, 1)]


@given(st.integers(1, 4), st.booleans())
def test_a_rank_has_a_staging_buffer_for_each_save_in_flight(in_flight: int, simulated: bool) -> None:
    background = replace(CHECKPOINT, background=Background(simulated=simulated, in_flight=in_flight))
    train = replace(LOOP, checkpoints=(Cadence("c", "steps", 10),))
    found = forecast(workload(train, checkpoint=background)).phases[-1].memory
    assert found.staging == (0 if simulated else 250 * in_flight)
    assert found.total == found.buffers + found.staging
    blocking = forecast(workload(train, checkpoint=CHECKPOINT)).phases[-1].memory
    assert blocking.staging == 0


def test_saves_by_the_clock_are_at_least_this_many() -> None:
    train = replace(LOOP, checkpoints=(Cadence("c", "seconds", seconds=10.0),))
    saved = forecast(workload(train, checkpoint=CHECKPOINT)).phases[-1]
    assert (saved.times, saved.at_least) == (1, True)


def test_bytes_beyond_64_bits_are_refused_and_never_negative() -> None:
    parts = (Part("w", 1 << 60, "whole"),)
    checkpoint = Checkpoint("c", 1, parts, Writers("file per rank"), Access(), "c", keep=1)
    files = state_files(checkpoint, checkpoint.split(8))
    with pytest.raises(PlanError, match=r"8 ranks that restore checkpoint `c` may read 9.22 EB"):
        restore_bytes(files, files.split, once=False)
