"""Files of each kind that a loader reads, written by the library that reads them. Runs in the loaders' own Python.

    python scripts/dev/fidelity/making.py KIND FOLDER --samples 64 --size 262144 --files 4

Prints nothing. Samples are random bytes of a fixed seed, and stand in the order of the names of their files.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: Samples in a chunk of the chunked HDF5 file.
CHUNK: Final = 4


def _sample(number: int, size: int) -> NDArray[np.uint8]:
    """Return the bytes of a sample, (size,)."""
    return np.random.default_rng(number).integers(0, 256, size, np.uint8)


def raw(folder: Path, samples: int, size: int, files: int) -> None:
    """Write a file of bare bytes for each sample; `files` has no meaning."""
    for number in range(samples):
        (folder / f"{number:06}.bin").write_bytes(_sample(number, size).tobytes())


def npz(folder: Path, samples: int, size: int, files: int) -> None:
    """Write an npz without compression for each sample, with an array `x` and a label `y`; `files` has no meaning."""
    for number in range(samples):
        np.savez(folder / f"{number:06}.npz", x=_sample(number, size), y=np.int64(number))


def npy(folder: Path, samples: int, size: int, files: int) -> None:
    """Write a npy for each sample; `files` has no meaning."""
    for number in range(samples):
        np.save(folder / f"{number:06}.npy", _sample(number, size))


def tar(folder: Path, samples: int, size: int, files: int) -> None:
    """Write `files` shards of webdataset; a sample is its bytes `bin` and a label `cls`."""
    shards: Any = import_module("webdataset")
    for file in range(files):
        with shards.TarWriter(str(folder / f"{file:06}.tar")) as writer:
            for number in range(file * samples // files, (file + 1) * samples // files):
                writer.write({"__key__": f"{number:06}", "bin": _sample(number, size).tobytes(), "cls": number})


def hdf5(folder: Path, samples: int, size: int, files: int) -> None:
    """Write one HDF5 file with a contiguous data set `records` of shape (samples, size); `files` has no meaning."""
    _hdf5(folder, samples, size, None)


def hdf5_chunked(folder: Path, samples: int, size: int, files: int) -> None:
    """Write the same in chunks of CHUNK rows, as wide as the rows, not compressed."""
    _hdf5(folder, samples, size, (min(CHUNK, samples), size))


def _hdf5(folder: Path, samples: int, size: int, chunks: tuple[int, int] | None) -> None:
    h5py: Any = import_module("h5py")
    with h5py.File(folder / "data.h5", "w") as file:
        rows = file.create_dataset("records", (samples, size), np.uint8, chunks=chunks)
        for number in range(samples):
            rows[number] = _sample(number, size)


def tfrecord(folder: Path, samples: int, size: int, files: int) -> None:
    """Write `files` TFRecord files; a record is an Example with the bytes as feature `image/encoded`."""
    tf: Any = import_module("tensorflow")
    for file in range(files):
        with tf.io.TFRecordWriter(str(folder / f"{file:06}.tfrecord")) as writer:
            for number in range(file * samples // files, (file + 1) * samples // files):
                value = tf.train.BytesList(value=[_sample(number, size).tobytes()])
                features = tf.train.Features(feature={"image/encoded": tf.train.Feature(bytes_list=value)})
                writer.write(tf.train.Example(features=features).SerializeToString())


KINDS: Final[dict[str, Callable[[Path, int, int, int], None]]] = {
    "raw": raw,
    "npz": npz,
    "npy": npy,
    "tar": tar,
    "hdf5": hdf5,
    "hdf5-chunked": hdf5_chunked,
    "tfrecord": tfrecord,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--size", type=int, default=262144, help="bytes of a sample")
    parser.add_argument("--files", type=int, default=4, help="files of a tar or tfrecord data set")
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    KINDS[options.kind](options.folder, options.samples, options.size, options.files)


if __name__ == "__main__":
    main()
