"""Figures of DLIO's summary over ranks."""

from __future__ import annotations

import numpy as np
import pytest

from dliosim.commands.dlio_summary import loop_metric, merge_config


def test_ranks_are_summed_in_training_and_listed_in_evaluation() -> None:
    figures = np.array([[[60.0, 10.0]], [[40.0, 30.0]]])
    training, evaluation = (loop_metric(prefix, figures, 2**20, 0.5) for prefix in ("train", "eval"))
    assert (training["train_au_percentage"], training["train_throughput_samples_per_second"]) == ([50], [40])
    assert training["train_au_meet_expectation"] == "success"
    assert evaluation["eval_au_percentage"] == pytest.approx([30, 20])
    assert evaluation["eval_throughput_samples_per_second"] == [10, 30]
    assert evaluation["eval_io_mean_MB_per_second"] == pytest.approx(20)


def test_a_workload_file_is_repeated_as_it_is() -> None:
    keys = {"dataset.record_length": 4096, "dataset.record_length_stdev": 7, "model": "unet", "reader.x.y": [1]}
    ours = {"dataset": {"record_length": 4000, "num_files_train": 2}, "model": {"name": "p"}, "train": {"epochs": 3}}
    assert merge_config(keys, ours) == {
        "dataset": {"record_length": 4096, "record_length_stdev": 7, "num_files_train": 2},
        "model": "unet",
        "reader": {"x": {"y": [1]}},
        "train": {"epochs": 3},
    }
    assert merge_config({"model.type": "cnn"}, {"model": {"name": "p"}}) == {"model": {"type": "cnn", "name": "p"}}
    assert merge_config({"model": "a", "model.type": "b"}, {}) == {"model": {"type": "b"}}
