"""Files that three ranks prepare are read in full by each format's own library: every sample of every file.

Nothing of ours finds or decodes a sample here: no index, no decoder. Only what samples must hold is asked of
`execute.payload.payload_format`, and the file of each sample by the layout's rule.
"""

from __future__ import annotations

import io
import json
import re
import struct
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from crc32c import crc32c

from dliosim.execute.payload.payload_format import dress_function, fill_part
from dliosim.execute.payload.sample_bytes import sample_keys
from dliosim.formats.registry import bind
from dliosim.language.compile import compile_pattern
from dliosim.model import Dataset, Job
from dliosim.plan.samples.sample_to_file import sample_sizes
from tests.formats.test_megatron import read_as_megatron
from tests.mpi.waiting import run_command

RANKS, SAMPLES = 3, 23

#: Of each data set what its block says besides `samples` and `path`; no layout and no chunk divides the 23 samples.
DATASETS = {
    "raw": "size uniform(100 B, 3000 B)\nlayout 4 files\nheader 100 B\nalign 64 B",
    "npy_few": "shape 5 x 7 x 3 of int16\nformat npy\nlayout 4 files in 3 folders",
    "npy_each": "size uniform(100 B, 3000 B)\nformat npy",
    "npz_stored": "shape 11 x 13 of float32\nformat npz\nlayout 4 files",
    "npz_deflated": "size 1501 B\nformat npz\nlayout 4 files\ncompress gzip 6\ncompressible 3 : 1",
    "csv_lines": "size uniform(30 B, 900 B)\nformat csv\nlayout 4 files",
    "csv_table": "size 91 B\nformat csv\nlayout shared file",
    "tfrecord_few": "size uniform(1 B, 20000 B)\nformat tfrecord\nlayout 4 files",
    "tfrecord_one": "size 1501 B\nformat tfrecord\nlayout shared file",
    "indexed_few": "shape 129 of uint16\nformat indexed\nlayout 4 files",
    "indexed_one": "shape 65 of int32\nformat indexed\nlayout shared file",
    "tar_few": "size uniform(1 B, 3000 B)\nformat tar\nlayout 4 files",
    "jpeg_each": "size uniform(2000 B, 9000 B)\nformat jpeg",
    "png_each": "size uniform(2000 B, 9000 B)\nformat png",
    "hdf5_run": "shape 5 x 7 x 3 of int16\nformat hdf5\nlayout shared file",
    "hdf5_parts": "shape 5 x 7 of float32\ndatasets 3\nformat hdf5\nlayout 4 files",
    "hdf5_chunks": "size 1501 B\nformat hdf5\nlayout shared file\nchunk 4 samples",
    "hdf5_pieces": "shape 6 x 10 x 5 of uint8\nformat hdf5\nlayout 4 files\nchunk 100 B",
    "hdf5_gzip": "shape 6 x 10 x 5 of int64\nformat hdf5\nlayout 4 files\nchunk 3 samples\ncompress gzip 4\n"
    "compressible 2 : 1",
    "hdf5_lzf": "size 1501 B\nformat hdf5\nlayout shared file\nchunk 700 B\ncompress lzf",
    "parquet_plain": "size 1500 B\ndatasets 2\nformat parquet\nlayout 4 files\nchunk 3 samples",
    "parquet_lists": "shape 5 x 7 of float32\nformat parquet\nlayout 4 files\ncompress zstd 3\ncompressible 2 : 1",
}
NEEDS = {"jpeg": "PIL", "png": "PIL", "parquet": "pyarrow"}


def installed(form: str) -> bool:
    try:
        __import__(NEEDS.get(form, "numpy"))
    except ImportError:
        return False
    return True


# ---- what is prepared -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Dataset]]:
    """The directory where three ranks prepared all data sets, in calls that divide nothing; and the data sets."""
    place = tmp_path_factory.mktemp("conformance")
    text = 'dlio 1\nworkload conformance "files for other readers"\nseed 11\n'
    for number, (name, said) in enumerate(DATASETS.items()):
        if installed(name.split("_", maxsplit=1)[0]):
            text += f'dataset {name} {{\nsamples {SAMPLES}\n{said}\npath "{name}"\n}}\n'
            text += f"prepare {name} {{ transfer {(1000, 1 << 20)[number % 2]} B }}\n"
    pattern = place / "conformance.dlio"
    pattern.write_text(text)
    places = ["--dir", str(place / "data"), "--output", str(place / "out")]
    done = run_command(RANKS, ["run", str(pattern), *places], place)
    assert done.returncode == 0, done.stdout + done.stderr
    workload, _ = compile_pattern(pattern, [], Job(RANKS))
    return place / "data", {dataset.name: dataset for dataset in workload.datasets}


def files_of(root: Path, dataset: Dataset) -> list[Path]:
    """The files of the data set, by their numbers: no other files are there but those that the format needs."""
    (directory,) = (root / dataset.path).iterdir()
    sidecars = {"manifest.json", *(path.name for path in directory.rglob("*") if path.suffix in (".idx", ".index"))}
    every = (path for path in directory.rglob("*") if path.is_file() and path.name not in sidecars)
    found = sorted(every, key=lambda path: path.name)
    assert len(found) == dataset.layout.files
    return found


def samples_of(dataset: Dataset, file: int) -> range:
    """Sample i is in file i * files // samples."""
    inside = [sample for sample in range(SAMPLES) if sample * dataset.layout.files // SAMPLES == file]
    return range(inside[0], inside[-1] + 1)


def expected(dataset: Dataset, sample: int, length: int | None = None) -> bytes:
    """The sample's own bytes, by (seed, sample) alone; all of them, or only the first ones."""
    number = np.array([sample])
    content = bytearray(int(sample_sizes(dataset, number)[0]) if length is None else length)
    fill_part(dress_function(bind(dataset)), int(sample_keys(dataset, number)[0]), 0, memoryview(content))
    return bytes(content)


# ---- what others read ---------------------------------------------------------------------------------------------


def by_numpy(path: Path, dataset: Dataset) -> list[bytes]:
    array = np.load(path, allow_pickle=False)
    if path.suffix == ".npz":
        with array as archive:
            assert archive.files == ["x"]
            array = archive["x"]
    assert array.dtype == np.dtype(dataset.element)
    if dataset.layout.kind == "file per sample":
        return [array.tobytes()]
    if dataset.shape is not None:
        assert array.shape[1:] == dataset.shape.extents
    return [row.tobytes() for row in array]


def by_h5py(path: Path, dataset: Dataset) -> list[bytes]:
    with h5py.File(path) as file:
        names = ["records"] if dataset.parts == 1 else [f"records_{part}" for part in range(dataset.parts)]
        assert sorted(file) == names
        if dataset.compress is not None:
            assert {file[name].compression for name in names} == {dataset.compress.codec}
        if dataset.shape is not None:
            assert {file[name].shape[1:] for name in names} == {dataset.shape.extents}
        assert {file[name].dtype for name in names} == {np.dtype(dataset.element)}
        return [b"".join(file[name][row].tobytes() for name in names) for row in range(len(file[names[0]]))]


def by_tarfile(path: Path, dataset: Dataset) -> list[bytes]:
    with tarfile.open(path, "r:") as archive:
        names = archive.getnames()
        assert [name.rpartition(".")[2] for name in names] == ["bin", "cls"] * (len(names) // 2)
        streams = [archive.extractfile(name) for name in names[::2]]
        return [stream.read() for stream in streams if stream is not None]


def by_pyarrow(path: Path, dataset: Dataset) -> list[bytes]:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(path)
    assert table.column_names == [f"column_{part}" for part in range(dataset.parts)]
    if dataset.shape is None:
        rows = zip(*(table[name].to_pylist() for name in table.column_names), strict=True)
        return [b"".join(row) for row in rows]
    (column,) = table.columns  # to lists of Python's floats NaNs would go, but not all of their bits
    values = column.combine_chunks().flatten().to_numpy()
    assert values.dtype == np.dtype(dataset.element)
    return [row.tobytes() for row in values.reshape(len(table), -1)]


def records(data: bytes) -> Iterator[bytes]:
    """Read as TensorFlow's RecordReader does: each length and each record with its masked CRC-32C."""

    def sealed(begin: int, end: int) -> bytes:
        crc = crc32c(data[begin:end])
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        assert data[end : end + 4] == struct.pack("<I", masked)
        return data[begin:end]

    at = 0
    while at < len(data):
        (length,) = struct.unpack("<Q", sealed(at, at + 8))
        yield sealed(at + 12, at + 12 + length)
        at += 16 + length


def by_record(path: Path, dataset: Dataset) -> list[bytes]:
    """The framing by hand; the value of `image/encoded`, the last of a record, by its length before it."""
    found = []
    for record in records(path.read_bytes()):
        length = int(sample_sizes(dataset, np.array([samples_of(dataset, int(path.stem))[len(found)]]))[0])
        assert b"\x0a\x0dimage/encoded" in record[:-length]
        found.append(record[-length:])
    return found


def by_tfrecord(path: Path, dataset: Dataset) -> list[bytes]:
    reader = pytest.importorskip("tfrecord.reader")
    whole = (0, 1)  # one shard of one: without, it begins at a record drawn from the index
    loader = reader.tfrecord_loader(str(path), str(path.with_suffix(".index")), {"image/encoded": "byte"}, shard=whole)
    return [bytes(record["image/encoded"]) for record in loader]


def by_pillow(path: Path, dataset: Dataset) -> list[bytes]:
    """The 64 bytes that a file begins with, as Pillow gives them; all of its pixels are decoded."""
    image_of = pytest.importorskip("PIL.Image")
    with image_of.open(path) as image:
        assert image.format == dataset.format.upper()
        image.load()
        assert len(np.unique(np.asarray(image))) > 1
        if image.format == "JPEG":
            return [image.applist[0][1][:64]]
        return [image.private_chunks[0][1][:64]]


def by_megatron(path: Path, dataset: Dataset) -> list[bytes]:
    """Samples run across sequences; the last token of each is the first of the next, and its own are all but that."""
    data = read_as_megatron(path)
    tokens = np.concatenate([data.sequence(number) for number in range(len(data.lengths))])
    assert tokens.dtype == np.dtype(dataset.element)
    assert dataset.shape is not None
    step = dataset.shape.extents[0] - 1
    assert len(tokens) % step == 1
    return [tokens[begin : begin + step].tobytes() for begin in range(0, len(tokens) - 1, step)]


def by_raw(path: Path, dataset: Dataset) -> list[bytes]:
    data, found, at = path.read_bytes(), list[bytes](), 100
    for size in sample_sizes(dataset, np.array(samples_of(dataset, int(path.stem)))).tolist():
        at = -(-at // 64) * 64
        found.append(data[at : at + size])
        at += size
    return found


Reader = Callable[[Path, Dataset], list[bytes]]
READERS: dict[str, Reader] = {
    "raw": by_raw, "npy": by_numpy, "npz": by_numpy, "hdf5": by_h5py, "tar": by_tarfile, "parquet": by_pyarrow,
    "tfrecord": by_record, "jpeg": by_pillow, "png": by_pillow, "indexed": by_megatron,
}  # fmt: skip


def own_bytes(dataset: Dataset, sample: int) -> bytes:
    """Return the part of a sample that is made of (seed, sample)."""
    if dataset.format in ("jpeg", "png"):
        return expected(dataset, sample, 64)
    whole = expected(dataset, sample)
    return whole[: -np.dtype(dataset.element).itemsize] if dataset.format == "indexed" else whole


def check(prepared: tuple[Path, dict[str, Dataset]], name: str, reader: Reader) -> None:
    root, datasets = prepared
    dataset, seen = datasets[name], 0
    for file, path in enumerate(files_of(root, dataset)):
        found = reader(path, dataset)
        assert len(found) == len(samples_of(dataset, file)), path
        for sample, data in zip(samples_of(dataset, file), found, strict=True):
            assert data == own_bytes(dataset, sample), f"sample {sample}, in {path}"
            seen += 1
    assert seen == SAMPLES


@pytest.mark.parametrize("name", [name for name in DATASETS if not name.startswith("csv")])
def test_the_formats_own_library_reads_every_sample(prepared: tuple[Path, dict[str, Dataset]], name: str) -> None:
    if name not in prepared[1]:
        pytest.skip("a package of this format is not installed")
    check(prepared, name, READERS[prepared[1][name].format])


@pytest.mark.parametrize("name", ["tfrecord_few", "tfrecord_one"])
def test_the_package_tfrecord_reads_every_sample(prepared: tuple[Path, dict[str, Dataset]], name: str) -> None:
    pytest.importorskip("tfrecord.reader")
    check(prepared, name, by_tfrecord)


@pytest.mark.parametrize("name", ["csv_lines", "csv_table"])
def test_csv_reads_every_number_of_every_line(prepared: tuple[Path, dict[str, Dataset]], name: str) -> None:
    """Numbers are read by numpy from the file's own text, and are those of the sample's bytes, to the last digit."""
    root, datasets = prepared
    dataset = datasets[name]
    for file, path in enumerate(files_of(root, dataset)):
        lines = path.read_bytes().splitlines(keepends=True)
        assert len(lines) == len(samples_of(dataset, file))
        for sample, line in zip(samples_of(dataset, file), lines, strict=True):
            whole = expected(dataset, sample)
            assert len(line) == len(whole)
            text = whole[:-1].decode("ascii")
            numbers = [float(part) for part in re.sub(r",$", "0", text).split(",")]
            assert np.loadtxt(io.BytesIO(line), delimiter=",", ndmin=1).tolist() == numbers


def test_pandas_reads_csv_of_lines_of_one_length(prepared: tuple[Path, dict[str, Dataset]]) -> None:
    pandas = pytest.importorskip("pandas")
    root, datasets = prepared
    (path,) = files_of(root, datasets["csv_table"])
    frame = pandas.read_csv(path, header=None)
    rows = [re.sub(r",$", "0", expected(datasets["csv_table"], row)[:-1].decode()).split(",") for row in range(SAMPLES)]
    assert np.allclose(frame.to_numpy(), np.array(rows, float), rtol=0, atol=1e-12)


# ---- what --verify may claim ----------------------------------------------------------------------------------------


def test_only_bytes_that_were_compared_are_said_to_be_verified(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    text = "dlio 1\nworkload w\n"
    loops = {
        "deflated": ("npz", "compress gzip", "through direct"),
        "members": ("tar", "compress off", "through direct"),
        "columns": ("parquet", "compress off", "through direct"),
        "decoded": ("parquet", "compress off", "through library"),
    }
    for name, (form, compress, through) in loops.items():
        text += (
            f'dataset {name} {{\nsamples 5\nsize 1000 B\nlayout 2 files\nformat {form}\n{compress}\npath "{name}"\n}}\n'
        )
        text += f"prepare {name}\ntrain of_{name} {{\nread {name}\n{through}\n}}\n"
    pattern = tmp_path / "w.dlio"
    pattern.write_text(text)
    places = ("--dir", str(tmp_path / "data"), "--output", str(tmp_path / "out"))
    done = run_command(1, ["run", str(pattern), "--verify", *places], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    epochs = {phase["name"]: phase["epochs"][0] for phase in results["phases"] if phase["kind"] == "train"}
    assert epochs["of_deflated"]["unchecked_bytes"] == 0
    assert epochs["of_members"]["bytes"] - epochs["of_members"]["unchecked_bytes"] == 5000
    assert epochs["of_columns"]["unchecked_bytes"] >= epochs["of_columns"]["bytes"]
    assert epochs["of_decoded"]["unchecked_bytes"] == 0
    known = sum(epochs[name]["bytes"] for name in ("of_deflated", "of_decoded"))
    assert results["verified_bytes"] == known + 5000
