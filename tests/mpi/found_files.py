"""Small files of every format, written by the libraries of these formats, and what each sample holds by the same."""

from __future__ import annotations

import csv
import struct
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from crc32c import crc32c

COUNTS = (5, 12, 1, 8)
FILL = 9
RNG = np.random.default_rng(7)


def _rows(count: int) -> np.ndarray:
    return RNG.integers(0, 1000, (count, 6, 7)).astype("<i4")


def _each(rows: np.ndarray) -> list[bytes]:
    return [row.tobytes() for row in rows]


def hdf5(path: Path, count: int) -> list[bytes]:
    rows = _rows(count)
    with h5py.File(path, "w") as file:
        file["images"] = rows
        file["label"] = np.arange(3)
    return _each(rows)


def hdf5_packed(path: Path, count: int) -> list[bytes]:
    rows, labels = _rows(count), np.arange(count)
    with h5py.File(path, "w") as file:
        file.create_dataset("g/image", data=rows, chunks=(min(3, count), 6, 7), compression="gzip", shuffle=True)
        file["label"] = labels
    return [row.tobytes() + label.tobytes() for row, label in zip(rows, labels, strict=True)]


def hdf5_pieces(path: Path, count: int) -> list[bytes]:
    rows = np.full((count, 6, 7), FILL, "<i4")
    rows[0] = RNG.integers(0, 1000, (6, 7))
    with h5py.File(path, "w") as file:
        data = file.create_dataset("x", rows.shape, "<i4", chunks=(1, 6, 7), fillvalue=FILL)
        data[0] = rows[0]  # and nothing of the others is in the file
        file.create_dataset("y", data=rows, chunks=(1, 4, 7), compression="lzf")
    return [2 * row.tobytes() for row in rows]


def npy(path: Path, count: int) -> list[bytes]:
    rows = _rows(count)
    np.save(path, rows)
    return _each(rows)


def npz(path: Path, count: int) -> list[bytes]:
    rows = _rows(count)
    np.savez(path, x=rows, other=np.arange(2))
    return _each(rows)


def npz_packed(path: Path, count: int) -> list[bytes]:
    rows, labels = _rows(count), np.arange(count, dtype="<u2")
    np.savez_compressed(path, image=rows, label=labels)
    return [row.tobytes() + label.tobytes() for row, label in zip(rows, labels, strict=True)]


def tar(path: Path, count: int) -> list[bytes]:
    contents = [RNG.bytes(100 + 400 * row) for row in range(count)]
    with tarfile.open(path, "w") as file:
        for row, content in enumerate(contents):
            for suffix, data in (("jpg", content), ("cls", b"%d" % row)):
                member = tarfile.TarInfo(f"s{row:04d}.{suffix}")
                member.size = len(data)
                file.addfile(member, BytesIO(data))
    return contents


def csv_lines(path: Path, count: int) -> list[bytes]:
    rows = RNG.integers(0, 10**6, (count, 5)).tolist()
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return [b",".join(b"%d" % value for value in row) + b"\r\n" for row in rows]


def tfrecord(path: Path, count: int) -> list[bytes]:
    def masked(data: bytes) -> bytes:
        value = crc32c(data)
        return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    def field(data: bytes) -> bytes:
        return bytes([10, len(data)]) + data

    contents = [RNG.bytes(20 + row) for row in range(count)]
    with path.open("wb") as file:
        for content in contents:
            entry = field(b"image/encoded") + b"\x12" + field(field(field(content)))[1:]
            example = field(field(entry))
            length = struct.pack("<Q", len(example))
            file.write(length + masked(length) + example + masked(example))
    return contents


def indexed(path: Path, count: int) -> list[bytes]:
    tokens = [RNG.integers(0, 60_000, 10 + 3 * row).astype("<u2") for row in range(count)]
    path.write_bytes(b"".join(one.tobytes() for one in tokens))
    sizes = np.array([len(one) for one in tokens], "<i4")
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, count, count + 1)
    places = (np.cumsum(sizes) - sizes).astype("<i8") * 2
    path.with_suffix(".idx").write_bytes(
        head + sizes.tobytes() + places.tobytes() + np.arange(count + 1, dtype="<i8").tobytes()
    )
    return [one.tobytes() for one in tokens]


def records(path: Path, count: int) -> list[bytes]:
    contents = [RNG.bytes(100) for _ in range(count)]
    path.write_bytes(b"".join(contents))
    return contents


def whole(path: Path, count: int) -> list[bytes]:
    content = RNG.bytes(50 * count)
    path.write_bytes(content)
    return [content]


def image(path: Path, count: int) -> list[bytes]:
    from PIL import Image

    Image.fromarray(RNG.integers(0, 256, (10 + count, 16, 3), dtype=np.uint8)).save(path)
    return [path.read_bytes()]


def parquet(path: Path, count: int) -> list[bytes]:
    import pyarrow as pa
    from pyarrow.parquet import write_table

    values = RNG.integers(0, 10**9, count)
    write_table(pa.table({"value": values, "text": [str(one) for one in values]}), path, row_group_size=count // 2 + 1)
    return [one.tobytes() for one in values]


def hub(path: Path, count: int) -> list[bytes]:
    """Store a file as a model hub does: a blob whose name says nothing, and a link to it."""
    blob = path.parents[2] / f"blobs/{count}e3b"
    blob.parent.mkdir(exist_ok=True)
    rows = _rows(count)
    with blob.open("wb") as stream:
        np.save(stream, rows)
    path.symlink_to(f"../../blobs/{blob.name}")
    return _each(rows)


#: By name: what to write, how files are named (odd names among them), and further lines of the data set's block.
CASES: dict[str, tuple[Callable[[Path, int], list[bytes]], str, str, dict[str, Any]]] = {
    "hdf5": (hdf5, "f %d.h5", "*.h5", {"datasets": ("images",)}),
    "hdf5 packed": (hdf5_packed, "é%d.h5", "*.h5", {"datasets": ("g/image", "label")}),
    "hdf5 pieces": (hdf5_pieces, "%d.h5", "*.h5", {"datasets": ("x", "y")}),
    "npy": (npy, "x/%d.npy", "**/*.npy", {"shape": "6 x 7 of int32"}),
    "hub": (hub, "snapshots/abc/%d.npy", "snapshots/*/*.npy", {"shape": "6 x 7 of int32"}),
    "npz": (npz, "%d.npz", "[0-9].npz", {"shape": "6 x 7 of int32"}),
    "npz packed": (npz_packed, "%d.npz", "*.npz", {"datasets": ("image", "label"), "shape": "6 x 7 of int32"}),
    "tar": (tar, "shard-%d.tar", "shard-?.tar", {}),
    "csv": (csv_lines, "%d.csv", "*.csv", {}),
    "tfrecord": (tfrecord, "train-%d-of-4.tfrecord", "train-*.tfrecord", {}),
    "indexed": (indexed, "%d.bin", "*.bin", {}),
    "records": (records, "%d.dat", "*.dat", {"size": "100 B"}),
    "raw": (whole, "new\n%d", "*", {}),
    "png": (image, "n/m/%d.png", "**/*.png", {}),
    "jpeg": (image, "%d.jpg", "*.jpg", {}),
    "parquet": (parquet, "%d.parquet", "*.parquet", {"datasets": ("value",)}),
}


def write(name: str, root: Path) -> tuple[str, dict[str, Any], list[bytes]]:
    """Write the files of a case below `root`: pattern of names, other settings, and the contents of the samples."""
    make, file_name, pattern, settings = CASES[name]
    folder = name.replace(" ", "_")
    contents: list[bytes] = []
    for number, count in enumerate(COUNTS):
        path = root / folder / (file_name % number)
        path.parent.mkdir(parents=True, exist_ok=True)
        contents += make(path, count)
    return f"{folder}/{pattern}", settings, contents
