"""Saving and loading a state by PyTorch's own means, one rank of it. Runs in a Python that has torch.

    RANK=0 WORLD_SIZE=2 python scripts/dev/fidelity/saving.py ACTION FOLDER --meet FILE

`dcp-save` and `dcp-load` are torch.distributed.checkpoint with all else by default: DTensors split over the ranks, as a
tensor-parallel model has them. `save` is torch.save by rank 0 of whole tensors, `load` torch.load of them by every
rank. The ranks meet at FILE, which must not be there. Prints nothing.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tensors import tensors

torch: Any = import_module("torch")
distributed: Any = import_module("torch.distributed")
checkpoint: Any = import_module("torch.distributed.checkpoint")
spread: Any = import_module("torch.distributed.tensor")


def whole() -> dict[str, Any]:
    """Return every tensor by its name, the same on each rank."""
    torch.manual_seed(1)
    return {
        name: torch.randn(rows, columns) if rows > 1 else torch.randn(columns) for name, rows, columns, _ in tensors()
    }


def split() -> dict[str, Any]:
    """Return the same as DTensors over all ranks."""
    mesh = spread.init_device_mesh("cpu", (distributed.get_world_size(),))
    placed = {"rows": spread.Shard(0), "columns": spread.Shard(1), "whole": spread.Replicate()}
    full = whole()
    return {each.name: spread.distribute_tensor(full[each.name], mesh, [placed[each.split]]) for each in tensors()}


def dcp_save(folder: Path) -> None:
    checkpoint.save(split(), storage_writer=checkpoint.FileSystemWriter(folder))


def dcp_load(folder: Path) -> None:
    checkpoint.load(split(), storage_reader=checkpoint.FileSystemReader(folder))


def save(folder: Path) -> None:
    if distributed.get_rank() == 0:
        folder.mkdir(parents=True)
        torch.save(whole(), folder / "state.pt")
    distributed.barrier()


def load(folder: Path) -> None:
    torch.load(folder / "state.pt")
    distributed.barrier()


ACTIONS: Final[dict[str, Callable[[Path], None]]] = {
    "dcp-save": dcp_save,
    "dcp-load": dcp_load,
    "save": save,
    "load": load,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=list(ACTIONS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--meet", type=Path, required=True)
    options = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    distributed.init_process_group("gloo", init_method=f"file://{options.meet}", rank=rank, world_size=ranks)
    ACTIONS[options.action](options.folder)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
