"""Copies of data sets on literal figures: what a node copies, whether it fits, and from which epoch on that pays."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dliosim.errors import UsageError
from dliosim.language.compile import compile_pattern
from dliosim.language.diagnostics import PatternError
from dliosim.model import Access, Compute, Dataset, Job, Layout, Loop, Stage, Workload, constant
from dliosim.model.verbs import Evaluation, Repeat, loops_after
from dliosim.plan.forecast.forecast import forecast
from dliosim.plan.forecast.needs import StageNeeds, StorageRates, stage_needs
from dliosim.plan.predict.prediction import refuse_copies

MB = 10**6
DATASET = Dataset("d", 1, 400, constant(MB), Layout("files", 10), "d")
LOOP = Loop("train", "l", "d", Access(), batch=5, epochs=9)
STAGE = Stage("d", "local")


def workload(*verbs: Any) -> Workload:
    return Workload("w", "", 1, Job(5, 2), (DATASET,), (), verbs)


def needs(stage: Stage = STAGE, loop: Loop = LOOP, **rates: float) -> StageNeeds:
    made = workload(stage, loop)
    return next(stage_needs(made, forecast(made), 1e12, StorageRates(**rates)))


def test_each_node_copies_all_files_and_its_ranks_deal_them() -> None:
    phase = forecast(workload(STAGE, LOOP)).phases[0]
    assert (phase.verb, phase.bytes.total, phase.files.total) == ("stage", 800 * MB, 20)
    # Three ranks on the first node have 4, 3 and 3 files, two on the other 5 each; a file is 40 MB, 10 calls.
    assert (phase.bytes.minimum, phase.bytes.maximum, phase.calls.maximum) == (120 * MB, 200 * MB, 50)
    (stored,) = forecast(workload(STAGE, LOOP)).storage
    assert (stored.kind, stored.root, stored.bytes, stored.copies) == ("copy", "local", 400 * MB, 2)


def test_a_copy_pays_after_as_many_epochs_as_save_the_time_that_it_took() -> None:
    # Copies of 800 MB take 8 s at 100 MB/s. An epoch takes 4 s, and 0.2 s from the copies: 3.8 s less each.
    found = needs(bandwidth=100e6, local=1e9)
    assert (found.copy_seconds, found.shared_seconds) == pytest.approx((8.0, 4.0))
    assert found.local_seconds == pytest.approx(0.2)
    assert found.pays_from == 3
    assert needs(Stage("d", "local", "in the background"), bandwidth=100e6, local=1e9).pays_from == 3


def test_a_copy_never_pays_where_compute_hides_the_reads_or_the_nodes_are_no_faster() -> None:
    hidden = Loop("train", "l", "d", Access(readers=1, prefetch=2), batch=5, compute=Compute(constant(1.0)))
    assert needs(loop=hidden, bandwidth=100e6, local=1e9).pays_from == math.inf
    assert needs(bandwidth=100e6, local=50e6).pays_from == math.inf


def test_without_rates_only_the_room_is_judged() -> None:
    assert (needs().pays_from, needs(bandwidth=1e9).pays_from) == (None, None)
    assert not needs(local_space=399 * MB).fits
    assert needs(local_space=400 * MB).fits
    assert needs(Stage("d", "local", holds="own share"), local_space=200 * MB).fits


def test_loops_after_a_verb_read_its_copies_and_those_before_it_only_if_they_run_again() -> None:
    inner = Loop("evaluate", "e", "d", Access())
    outer = Loop("train", "o", "", Access(), steps=1, evaluations=(Evaluation(1, inner),))
    assert list(loops_after(STAGE, (LOOP, STAGE, outer))) == [inner]
    assert list(loops_after(STAGE, (Repeat(2, (LOOP, STAGE)), outer))) == [LOOP, inner]


def test_a_described_storage_is_refused_unless_nothing_is_copied() -> None:
    with pytest.raises(UsageError, match=r'`-D "stage d\.copy=off"` reads d where it is'):
        refuse_copies(workload(STAGE, LOOP))
    refuse_copies(workload(Stage("d", "local", "off"), LOOP))


def test_ranks_of_several_nodes_cannot_open_copies_together(tmp_path: Any) -> None:
    path = tmp_path / "p.dlio"
    loop = "train {\n read d\n api mpi-independent\n}\n"
    head = 'dlio 1\nworkload w\ndataset d {\n samples 40\n size 1 kB\n path "d"\n}\n'
    path.write_text(f"{head}stage d to local\n{loop}")
    compile_pattern(path, [], Job(4, 1))
    with pytest.raises(PatternError) as found:
        compile_pattern(path, [], Job(4, 2))
    assert [one.code for one in found.value.diagnostics] == ["E211"]
    compile_pattern(path, [("train.communicator", "node")], Job(4, 2))
