"""Real data loaders over a folder of files. Each run is a process of its own, in a Python that has their libraries.

    python scripts/dev/fidelity/loaders.py LOADER FOLDER --batch 4 --compute 0.05 --workers 2 --epochs 1

Prints one line of JSON and nothing else: for each epoch its `seconds` from asking for an iterator until this has ended,
the seconds until the `first` batch was there and until the `last` step was over, its `steps`, and the processor
seconds of the `busy` main process. A step takes a batch and then sleeps for `--compute`. Samples come in the order of
files and rows: nothing is shuffled, so that two runs can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

#: Steps of an epoch in memory.
_STEPS: Final = 128

#: One epoch of batches each time it is called.
Epoch = Callable[[], Iterable[Any]]


class Samples(Protocol):
    """A map-style data set of torch."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> NDArray[np.uint8]: ...


#: Files next to data: dliosim's description of them, and places of records in tfrecord files.
_SIDECARS: Final = (".json", ".index")


def data_files(folder: Path) -> list[Path]:
    """Return the files with samples, in the order of names."""
    return sorted(file for file in folder.iterdir() if file.suffix not in _SIDECARS)


class RawFiles:
    """A file of bare bytes for each sample, read by open() and read()."""

    def __init__(self, folder: Path) -> None:
        self._files = data_files(folder)

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        with self._files[index].open("rb") as file:
            return np.frombuffer(bytearray(file.read()), np.uint8)


class NpzFiles:
    """An npz for each sample; only its array `x` is used."""

    def __init__(self, folder: Path) -> None:
        self._files = data_files(folder)

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        with np.load(self._files[index]) as arrays:
            x: NDArray[np.uint8] = arrays["x"]
        return x


class Hdf5Rows:
    """The rows of `records` of one HDF5 file, which each process opens when it first reads."""

    def __init__(self, folder: Path) -> None:
        self._h5py: Any = import_module("h5py")
        (self._path,) = data_files(folder)
        self._rows: Any = None
        with self._h5py.File(self._path, "r") as file:
            self._count = len(file["records"])

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        if self._rows is None:
            self._rows = self._h5py.File(self._path, "r")["records"]
        row: NDArray[np.uint8] = self._rows[index]
        return row


class InMemory:
    """Samples in memory: only the cost of a loader without reading is left."""

    def __init__(self, size: int, samples: int) -> None:
        self._samples = samples
        self._sample = np.zeros(size, np.uint8)

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        return self._sample


def inline_loader(samples: Samples, batch: int) -> Epoch:
    """Return epochs of whole batches, read and stacked in the step itself."""

    def epoch() -> Iterator[NDArray[np.uint8]]:
        for first in range(0, len(samples) - batch + 1, batch):
            yield np.stack([samples[index] for index in range(first, first + batch)])

    return epoch


def torch_loader(samples: Samples, batch: int, workers: int, persistent: bool) -> Epoch:
    """Return epochs of torch.utils.data.DataLoader with all defaults but these: two batches ahead for each worker.

    Workers are processes that are started for each epoch and end with it, unless they are `persistent`.
    """
    data: Any = import_module("torch.utils.data")
    loader = data.DataLoader(
        samples, batch_size=batch, num_workers=workers, drop_last=True, persistent_workers=persistent
    )
    return lambda: loader


def tensorflow_loader(folder: Path, batch: int, prefetch: int) -> Epoch:
    """Return epochs of tf.data.TFRecordDataset over all files in their order, parsed, batched and prefetched."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    tf: Any = import_module("tensorflow")
    features = {"image/encoded": tf.io.FixedLenFeature([], tf.string)}
    files = [str(file) for file in data_files(folder)]
    records = tf.data.TFRecordDataset(files).map(
        lambda record: tf.io.decode_raw(tf.io.parse_single_example(record, features)["image/encoded"], tf.uint8)
    )
    batches = records.batch(batch, drop_remainder=True).prefetch(prefetch)
    return lambda: batches


def _tensorflow(folder: Path, batch: int, workers: int) -> Epoch:
    return tensorflow_loader(folder, batch, 2)


#: From folder, samples of a batch and workers; workers have no meaning where there are none.
Make = Callable[[Path, int, int], Epoch]

LOADERS: Final[dict[str, Make]] = {
    "raw": lambda folder, batch, workers: inline_loader(RawFiles(folder), batch),
    "npz": lambda folder, batch, workers: inline_loader(NpzFiles(folder), batch),
    "hdf5": lambda folder, batch, workers: inline_loader(Hdf5Rows(folder), batch),
    "tfrecord": _tensorflow,
    "torch-raw": lambda folder, batch, workers: torch_loader(RawFiles(folder), batch, workers, False),
    "torch-raw-persistent": lambda folder, batch, workers: torch_loader(RawFiles(folder), batch, workers, True),
    "torch-npz": lambda folder, batch, workers: torch_loader(NpzFiles(folder), batch, workers, False),
    "torch-hdf5": lambda folder, batch, workers: torch_loader(Hdf5Rows(folder), batch, workers, False),
    "torch-npz-persistent": lambda folder, batch, workers: torch_loader(NpzFiles(folder), batch, workers, True),
    "torch-hdf5-persistent": lambda folder, batch, workers: torch_loader(Hdf5Rows(folder), batch, workers, True),
}


def run_epoch(epoch: Epoch, compute: float) -> dict[str, float]:
    """Run an epoch with steps of `compute` seconds."""
    steps, first, last = 0, 0.0, 0.0
    busy, began = process_time(), perf_counter()
    for _ in epoch():
        if not steps:
            first = perf_counter() - began
        steps += 1
        if compute:
            sleep(compute)
        last = perf_counter() - began
    seconds, busy = perf_counter() - began, process_time() - busy
    return {"seconds": seconds, "first": first, "last": last, "steps": steps, "busy": busy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loader", choices=[*LOADERS, "torch-memory"])
    parser.add_argument("folder", type=Path, help="of no meaning to torch-memory")
    parser.add_argument("--batch", type=int, default=4, help="samples of a step")
    parser.add_argument("--compute", type=float, default=0.0, help="seconds slept in each step")
    parser.add_argument("--workers", type=int, default=2, help="worker processes of torch")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--size", type=int, default=262144, help="bytes of a sample of torch-memory")
    options = parser.parse_args()
    if options.loader == "torch-memory":
        in_memory = InMemory(options.size, _STEPS * options.batch)
        epoch = torch_loader(in_memory, options.batch, options.workers, False)
    else:
        epoch = LOADERS[options.loader](options.folder, options.batch, options.workers)
    print(json.dumps([run_epoch(epoch, options.compute) for _ in range(options.epochs)]))


if __name__ == "__main__":
    main()
