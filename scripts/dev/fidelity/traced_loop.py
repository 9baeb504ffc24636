"""A training loop over one real loader, to be traced. Runs in a Python that has the loaders' libraries.

    python scripts/dev/fidelity/traced_loop.py KIND FOLDER --style map --workers 2 --shuffled --compute 0.03

Each step takes a batch and sleeps. Iterable loaders give each worker every n-th sample or shard. Prints the steps.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from time import sleep
from typing import Any, Final

import numpy as np
from loaders import Hdf5Rows, NpzFiles, RawFiles, Samples, data_files
from numpy.typing import NDArray

#: Samples among which records of a file are shuffled.
_BUFFER: Final = 16

#: From the number of an epoch, its batches.
Epochs = Callable[[int], Iterable[Any]]


class NpyFiles(RawFiles):
    """A npy for each sample."""

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        sample: NDArray[np.uint8] = np.load(self._files[index])
        return sample


MAPS: Final[dict[str, Callable[[Path], Samples]]] = {"npz": NpzFiles, "npy": NpyFiles, "hdf5": Hdf5Rows}


def map_loader(options: argparse.Namespace) -> Epochs:
    """Return epochs of a DataLoader whose sampler gives numbers of samples to workers."""
    data: Any = import_module("torch.utils.data")
    samples = MAPS[options.kind](options.folder)
    loader = data.DataLoader(samples, options.batch, options.shuffled, num_workers=options.workers, drop_last=True)
    return lambda epoch: loader


def iterable_loader(options: argparse.Namespace) -> Epochs:
    """Return epochs of a DataLoader whose workers each walk through samples of their own."""
    data: Any = import_module("torch.utils.data")
    samples = MAPS[options.kind](options.folder)

    class Walk(data.IterableDataset):  # type: ignore[misc]
        epoch = 0

        def __iter__(self) -> Iterator[NDArray[np.uint8]]:
            order = np.arange(len(samples))
            if options.shuffled:
                np.random.default_rng(self.epoch).shuffle(order)
            worker = data.get_worker_info()
            for index in order[worker.id :: worker.num_workers] if worker else order:
                yield samples[int(index)]

    walk = Walk()

    def epoch(number: int) -> Any:
        walk.epoch = number
        return data.DataLoader(walk, options.batch, num_workers=options.workers, drop_last=True)

    return epoch


def tar_loader(options: argparse.Namespace) -> Epochs:
    """Return epochs of webdataset over tar shards, which workers share."""
    shards: Any = import_module("webdataset")
    data: Any = import_module("torch.utils.data")
    files = [str(file) for file in data_files(options.folder)]
    many = len(files) if options.shuffled else False
    dataset = shards.WebDataset(files, shardshuffle=many, empty_check=False)
    dataset = dataset.shuffle(_BUFFER) if options.shuffled else dataset
    dataset = dataset.to_tuple("bin").batched(options.batch, partial=False)
    loader = data.DataLoader(dataset, None, num_workers=options.workers)
    return lambda epoch: loader


def record_loader(options: argparse.Namespace) -> Epochs:
    """Return epochs of tf.data over TFRecord files; as many as workers are read at a time."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    tf: Any = import_module("tensorflow")
    files = tf.data.Dataset.from_tensor_slices([str(file) for file in data_files(options.folder)])
    files = files.shuffle(len(files)) if options.shuffled else files
    many = options.workers or 1
    threads = options.workers or None
    records = files.interleave(tf.data.TFRecordDataset, cycle_length=many, num_parallel_calls=threads)
    records = records.shuffle(_BUFFER) if options.shuffled else records
    batches = records.batch(options.batch, drop_remainder=True).prefetch(2 if options.workers else 0)
    return lambda epoch: batches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=[*MAPS, "tar", "tfrecord"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--style", choices=["map", "iterable"], default="map", help="of torch's data sets")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--shuffled", action="store_true")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--compute", type=float, default=0.03, help="seconds slept in each step")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    makers = {"tar": tar_loader, "tfrecord": record_loader}
    make = makers.get(options.kind, map_loader if options.style == "map" else iterable_loader)
    epochs, steps = make(options), 0
    for number in range(options.epochs):
        for _ in epochs(number):
            steps += 1
            if options.compute:
                sleep(options.compute)
    print(steps)


if __name__ == "__main__":
    main()
