"""`dliosim new --from FILES --generated`: data like existing files, by what the files say."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.cli import main
from dliosim.language.compile import compile_pattern
from dliosim.model import Chunk, Compression, Dataset, Job, Layout, Shape
from dliosim.model.counter_rng import draw, key
from dliosim.model.distributions import constant
from dliosim.model.fitted_sizes import fit_sizes

WAVES = np.cumsum(np.random.default_rng(1).normal(size=1 << 20))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, with one for data."""
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    return tmp_path


def waves(*shape: int, element: str = "int16") -> np.ndarray:
    """Return numbers that compress as measurements do."""
    return (10 * WAVES[: np.prod(shape)]).astype(element).reshape(shape)


def generated(capsys: pytest.CaptureFixture[str], notes: int = 0) -> Dataset:
    assert main(["new", "like", "--from", "mine", "--generated"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert len([line for line in said if line.startswith("note:")]) == notes
    workload, warnings = compile_pattern(Path("like.dlio"), [], Job(2))
    assert warnings == ()
    return workload.datasets[0]


def test_chunks_filters_and_shapes_of_hdf5(capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        with h5py.File(f"mine/{number}.h5", "w") as file:
            data = waves(20, 16, 16, element="float32")
            file.create_dataset("scan", data=data, chunks=(5, 16, 16), compression="gzip", compression_opts=2)
    data = generated(capsys)
    assert (data.samples, data.layout, data.format) == (60, Layout("files", 3), "hdf5")
    assert (data.shape, data.parts) == (Shape((16, 16), "float32"), 1)
    assert (data.chunk, data.compress) == (Chunk(5, "samples"), Compression("gzip", 2))
    assert 1 < data.compressible < 2


def test_tiles_of_hdf5_and_a_filter_that_nothing_writes(capsys: pytest.CaptureFixture[str]) -> None:
    with h5py.File("mine/0.h5", "w") as file:
        file.create_dataset("scan", data=waves(4, 64, 64), chunks=(1, 32, 16), scaleoffset=0)
    data = generated(capsys, notes=1)
    assert data.layout == Layout("shared file", 1)
    assert (data.chunk, data.compress) == (Chunk(512, "elements", (32, 16)), Compression("gzip", 4))


def test_arrays_of_one_shape_stay_apart_and_others_have_one_size(capsys: pytest.CaptureFixture[str]) -> None:
    with h5py.File("mine/0.h5", "w") as file:
        file["left"], file["right"] = waves(6, 8, 8), waves(6, 8, 8)
    data = generated(capsys)
    assert (data.shape, data.parts) == (Shape((8, 8), "int16"), 2)
    Path("like.dlio").unlink()
    with h5py.File("mine/0.h5", "w") as file:
        file["image"], file["label"] = waves(6, 8, 8), waves(6, 2)
    data = generated(capsys, notes=1)
    assert (data.constant_size, data.shape, data.parts) == (132, None, 2)


def test_files_of_numpy_have_the_shape_of_their_array_and_their_folders(capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(9):
        Path(f"mine/{number % 3}").mkdir(exist_ok=True)
        np.save(f"mine/{number % 3}/{number}.npy", waves(32, 32, 3, element="uint8"))
    data = generated(capsys)
    assert (data.layout, data.shape) == (Layout("file per sample", 9, 3), Shape((32, 32, 3), "uint8"))


def test_sizes_that_vary_are_a_distribution_within_the_least_and_the_greatest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sizes = np.random.default_rng(2).lognormal(9, 0.5, 200).astype(int)
    for number, size in enumerate(sizes.tolist()):
        np.savez_compressed(f"mine/{number}.npz", x=waves(size))
    data = generated(capsys)
    assert (data.size.low, data.size.high) == (2 * sizes.min(), 2 * sizes.max())
    assert data.size.mean == pytest.approx(2 * sizes.mean(), abs=1)
    assert data.compress == Compression("gzip", 6)


def test_the_frames_of_an_archive_are_not_contents(capsys: pytest.CaptureFixture[str]) -> None:
    with tarfile.open("mine/0.tar", "w") as tar:
        for number in range(10):
            for name, size in ("bin", 5000), ("cls", 2):
                member = tarfile.TarInfo(f"{number:04d}.{name}")
                member.size = size
                tar.addfile(member, io.BytesIO(bytes(size)))
    data = generated(capsys)
    assert (data.samples, data.format) == (10, "tar")
    assert data.constant_size is not None and 5000 <= data.constant_size <= 5120  # to the next 512 bytes


def test_files_without_samples_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    for number, samples in enumerate((0, 5, 5)):
        with h5py.File(f"mine/{number}.h5", "w") as file:
            file.create_dataset("records", data=waves(5, 4000)[:samples], maxshape=(None, 4000), chunks=(1, 4000))
    assert generated(capsys).layout == Layout("files", 2)


@pytest.mark.parametrize(("shape", "expected"), [("zeros", 100.0), ("random", 1.0)])
def test_contents_of_plain_files_compress_as_theirs_do(
    shape: str, expected: float, capsys: pytest.CaptureFixture[str]
) -> None:
    made: dict[str, Callable[[int], bytes]] = {"zeros": bytes, "random": np.random.default_rng(3).bytes}
    for number in range(4):
        Path(f"mine/{number}.dat").write_bytes(made[shape](100_000))
    data = generated(capsys, notes=1)
    assert (data.format, data.constant_size) == ("raw", 100_000)
    assert data.compressible == 1 if shape == "random" else data.compressible >= expected


@pytest.mark.parametrize("words", [["--generated"], ["--from", "cosmoflow", "--generated"]])
def test_without_files_there_is_nothing_to_be_like(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "like", *words]) == 2
    assert "--from" in capsys.readouterr().err
    assert not Path("like.dlio").exists()


def test_samples_that_are_little_of_their_files_are_said_first(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("mine/0.npz", x=waves(100), more=waves(10_000))
    assert main(["new", "like", "--from", "mine/0.npz", "--generated"]) == 0
    assert capsys.readouterr().err.startswith("note: samples are ")


@given(st.sampled_from(["normal", "uniform", "lognormal"]), st.floats(0.05, 0.3), st.integers(0, 100))
def test_drawn_sizes_are_found_again(kind: str, spread: float, seed: int) -> None:
    numbers = np.random.default_rng(seed)
    makers = {
        "normal": lambda: numbers.normal(1e6, spread * 1e6, 3000),
        "uniform": lambda: numbers.uniform(1e6 * (1 - spread), 1e6 * (1 + spread), 3000),
        "lognormal": lambda: numbers.lognormal(13.8, spread, 3000),
    }
    sizes = np.rint(np.maximum(makers[kind](), 1))
    found, error = fit_sizes(sizes)
    assert error < 0.05
    again = draw(found, key(1, "other"), np.arange(10_000))
    assert again.mean() == pytest.approx(sizes.mean(), rel=0.02)


def test_one_size_stands_for_few_others_if_the_mean_stays() -> None:
    sizes = np.repeat([160.0, 200.0], [995, 5])
    assert fit_sizes(sizes) == (constant(160), pytest.approx(0.005))
    assert fit_sizes(np.append(sizes, 50_000.0))[0].kind != "constant"
