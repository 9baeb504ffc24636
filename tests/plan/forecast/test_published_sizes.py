"""Shipped patterns with `-D scale=1`: their sizes, and what they need of storage, are those that are published."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from dliosim.language.compile import compile_pattern
from dliosim.model import Job
from dliosim.plan.forecast.forecast import forecast
from dliosim.plan.forecast.forecast_types import Forecast

ROOT = Path(__file__).parents[3]
PATTERNS = ROOT / "patterns"
MANUAL = (ROOT / "docs" / "dlio.md").read_text(encoding="utf-8")

#: Share by which draws of sizes, and the limits of these, change the bytes of a data set: that of 168 files.
DRAWS = 0.1


def plan(name: str, ranks: int, accelerator: str = "", **more: str) -> Forecast:
    """The forecast of a pattern in its published size."""
    given = {"scale": "1", **({"accelerator": accelerator} if accelerator else {}), **more}
    return forecast(compile_pattern(PATTERNS / f"{name}.dlio", list(given.items()), Job(ranks))[0])


@dataclass(frozen=True)
class Published:
    """A data set as it is published."""

    pattern: str
    dataset: str
    files: int
    samples: int
    sample_bytes: int
    ranks: int = 4
    accelerator: str = ""


@pytest.mark.parametrize(
    "known",
    [
        Published("unet3d", "kits19", 168, 168, 146_600_628),
        Published("unet3d", "kits19", 7200, 7200, 146_600_628, accelerator="b200"),
        Published("resnet50", "imagenet", 1024, 1024 * 1251, 114_660),
        Published("cosmoflow", "universe", 524_288, 524_288, 2_828_486),
        Published("cosmoflow_large", "universe", 1, 524_288, 2_828_486, ranks=512),
        Published("retinanet", "images", 1_170_301, 1_170_301, 322_957),
        Published("flux", "latents", 4296, 4296 * 288, 2_164_832),
        Published("dlrm", "features", 1024, 1024 * 4_718_592, 761),
        Published("bert", "pretraining", 500, 500 * 313_532, 2500),
        Published("megatron", "tokens", 1, 277_203_535, 2048),
        Published("checkpoint_async", "tokens", 1, 277_203_535, 2048),
        Published("default", "training", 64, 64, 4096),
        Published("default", "validation", 8, 8, 4096),
        Published("prepare_imagenet", "many", 1024, 1024 * 1251, 114_660),
        Published("prepare_imagenet", "one", 1, 1024 * 1251, 114_660),
        Published("ffn", "images", 2, 18_678, 32_768),
        Published("cosmic_tagger", "images", 1, 43_075, 702_796),
        Published("deepcam", "climate", 121_266, 121_266, 56_623_104),
        Published("deepcam", "holdout", 15_158, 15_158, 56_623_104),
        Published("cosmoflow_paper", "universe", 1024, 1024 * 256, 1 << 23),
        Published("candle", "expressions", 1, 1120, 698_891),
        Published("frnn", "shots", 2800, 2800 * 1024, 2048),
        Published("tf_cnn", "imagenet", 1024, 1024 * 1024, 262_144),
        Published("openfold_prepare", "loose", 524_000, 524_000, 1_241_789),
        Published("cold_start", "weights", 130, 38_565, 1 << 24),
        Published("webdataset", "shards", 2563, 2563 * 500, 114_660),
    ],
    ids=lambda known: f"{known.pattern}-{known.dataset}-{known.accelerator}",
)
def test_a_data_set_has_the_published_files_samples_and_bytes(known: Published) -> None:
    found = plan(known.pattern, known.ranks, known.accelerator)
    [stored] = [one for one in found.storage if one.name == known.dataset and one.kind == "dataset"]
    [written] = [phase for phase in found.phases if (phase.verb, phase.name) == ("prepare", known.dataset)]
    assert (stored.files, written.samples.total) == (known.files, known.samples)
    assert written.bytes.total == pytest.approx(known.samples * known.sample_bytes, rel=DRAWS)


@pytest.mark.parametrize(
    ("name", "checkpoint", "size"),
    [
        ("unet3d", "model", 499_153_191),
        ("bert", "model", 4_034_713_312),
        ("l2hmc", "state", 39_010_000),
        ("climate_segmentation", "model", 16_000_000),
        ("candle", "model", 620_000_000),
    ],
)
def test_a_checkpoint_has_the_published_bytes(name: str, checkpoint: str, size: int) -> None:
    [state] = plan(name, 4).states
    assert (state.checkpoint, state.bytes) == (checkpoint, size)


@pytest.mark.parametrize(
    ("name", "accelerator", "needs"),
    [
        ("unet3d", "a100", 1.614e9),
        ("unet3d", "h100", 3.177e9),
        ("unet3d", "b200", 6.335e9),
        ("resnet50", "a100", 0.105e9),
        ("resnet50", "h100", 0.205e9),
        ("cosmoflow", "a100", 0.513e9),
        ("cosmoflow", "h100", 0.808e9),
        ("retinanet", "b200", 0.163e9),
    ],
)
def test_an_accelerator_that_never_waits_takes_the_published_rate(name: str, accelerator: str, needs: float) -> None:
    demands = [phase.demand for phase in plan(name, 4, accelerator).phases if phase.demand]
    for demand in demands:
        assert demand.rate_without_waits == pytest.approx(needs, rel=0.05 if name == "unet3d" else 0.005)


@pytest.mark.parametrize(
    "words, needs", re.findall(r"^\| `(\w+(?: -D \S+)*)` \|.* \| ([0-9.]+) \|$", MANUAL, re.MULTILINE)
)
def test_the_table_of_the_manual_has_the_needs_of_patterns(words: str, needs: str) -> None:
    name, *given = words.split()
    accelerator = given[1].partition("=")[2] if given else ""
    demand = next(phase.demand for phase in plan(name, 4, accelerator).phases if phase.demand)
    assert demand.rate_without_waits / 1e9 == pytest.approx(float(needs), rel=0.01)


@pytest.mark.parametrize("path", sorted(PATTERNS.glob("*.dlio")), ids=lambda path: path.stem)
def test_every_pattern_has_a_scale(path: Path) -> None:
    assert compile_pattern(path, [("scale", "1")], Job(4))[0].name == path.stem
