"""Runs of a drawn workload with and without a fault, and the files in its directory after them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults.drawing import Fault, Phase, Seen, Workload

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from dliosim.execute.store import checkpoint_store
from dliosim.execute.store.manifest import load_manifest
from tests.execute.alone import checkpoint_faults
from tests.mpi.launch import running, start_ranks
from tests.mpi.waiting import run_command

SOURCE = Path(__file__).with_name("inject.c")

#: A run that takes longer has hung; seconds. Without a fault it takes one or two on a machine with nothing else to do.
LONGEST = 30.0

#: Who uses the checkpoint `c`.
_SAVING = ("save", "restore", "checkpoint")

#: How long the processes of a job have to end after its launcher; seconds.
_ENDING = 5.0


@dataclass(frozen=True)
class Done:
    """The end of a run.

    `seen` are the calls of each rank, `hit` those that met a fault, `left` the processes that still run.
    """

    status: int
    text: str
    seen: tuple[tuple[Seen, ...], ...]
    hit: tuple[Seen, ...]
    hung: bool
    left: tuple[int, ...]


@dataclass(frozen=True)
class Place:
    """A directory for one workload: its files below `tree`, and next to it the files by which it is run."""

    directory: Path
    workload: Workload
    library: Path

    @property
    def tree(self) -> Path:
        """The directory below which faults are injected: data, checkpoints, and drained copies."""
        return self.directory / "tree"

    def run(self, verbs: str, fault: Fault | None = None, watched: bool = False) -> Done:
        """Run these verbs, with a fault, or only watched, or neither."""
        pattern, logs, output = (self.directory / name for name in ("faults.dlio", "log", "out"))
        pattern.write_text(self.workload.pattern(verbs))
        for old in (logs, output):
            shutil.rmtree(old, ignore_errors=True)
        logs.mkdir()
        self.tree.mkdir(exist_ok=True)
        places = ["--dir", str(self.tree / "data")]
        if "drain to drained" in self.workload.checkpoint and any(f"{verb} c" in verbs for verb in _SAVING):
            places += ["--root", f"drained={self.tree / 'drained'}"]
        command = ["run", str(pattern), *places, "--output", str(output), "--verify"]
        if fault is None and not watched:
            return self._run_plainly(command)
        env = {"LD_PRELOAD": str(self.library), "INJECT_FOLDER": str(self.tree.resolve()), "INJECT_LOG": str(logs)}
        if fault is not None:
            env["INJECT_FAULT"] = fault.arguments
        ranks = self.workload.ranks
        with running(start_ranks(ranks, "-m", "dliosim.cli", *command, env=env, cwd=self.directory)) as job:
            hung = False
            try:
                out, errors = job.launcher.communicate(timeout=LONGEST)
            except subprocess.TimeoutExpired:
                hung = True
                job.kill()
                out, errors = job.launcher.communicate()
            left = [] if hung else job.outliving(_ENDING)
        lines = [_lines(logs / str(rank)) for rank in range(ranks)]
        seen = tuple(tuple(_parse_call(line.removeprefix("!")) for line in each) for each in lines)
        hit = tuple(_parse_call(line[1:]) for each in lines for line in each if line.startswith("!"))
        return Done(job.launcher.returncode, errors + out, seen, hit, hung, tuple(left))

    def has_kept_data(self) -> bool:
        """Return whether the last run kept the data set as complete, by its results."""
        phases = json.loads((self.directory / "out" / "results.json").read_text())["phases"]
        return any(note.startswith("kept: complete data") for note in phases[0]["notes"])

    def _run_plainly(self, command: Sequence[str]) -> Done:
        """Run a command on ranks that wait for such, as nothing is to be loaded before it."""
        try:
            done = run_command(self.workload.ranks, command, self.directory, LONGEST)
        except pytest.fail.Exception as failure:
            return Done(1, str(failure), (), (), True, ())
        return Done(done.returncode, done.stderr + done.stdout, (), (), False, ())

    def whole(self, saved: bool) -> str:
        """Return the whole pattern, one verb after another; with a restore before the save where something is saved."""
        verbs = self.workload.verbs
        restore = verbs("restore")
        return "".join([verbs("prepare"), verbs("loop"), restore if saved else "", "save c\n", restore])

    def begin(self) -> None:
        """Make what phases begin with but the first: complete data and two checkpoints."""
        done = self.run(self.workload.verbs("prepare") + self.workload.verbs("save"))
        if done.status:
            raise ValueError(f"{self.workload} does not run:\n{done.text}")
        shutil.rmtree(self._backup, ignore_errors=True)
        self.tree.rename(self._backup)

    def reset(self, phase: Phase) -> None:
        """Put the files in place that a phase begins with."""
        shutil.rmtree(self.tree, ignore_errors=True)
        if phase != "prepare":
            shutil.copytree(self._backup, self.tree)

    @property
    def _backup(self) -> Path:
        return self.directory / "kept"

    def files(self) -> dict[str, tuple[int, int]]:
        """Return the size and CRC-32 of each file by its path, but not of locks: their holder may be dead."""
        found = (path for path in sorted(self.tree.rglob("*")) if path.is_file() and path.name != "lock")
        return {str(path.relative_to(self.tree)): (path.stat().st_size, _sum(path)) for path in found}

    def checkpoints(self) -> dict[str, tuple[bool, list[str]]]:
        """Return for each complete checkpoint whether it counts by its manifest, and which sums are wrong."""
        found = {}
        for base in sorted(self.tree.glob("*/c/*")):
            for number in checkpoint_store.checkpoint_numbers(base) if base.is_dir() else []:
                directory = base / f"{number:06d}"
                try:
                    saved = load_manifest(directory)
                except (OSError, ValueError):
                    continue
                counts = saved.find_size_fault(directory) is None
                found[str(directory.relative_to(self.tree))] = (
                    counts,
                    checkpoint_faults(directory) if counts else [],
                )
        return found

    def litter(self) -> list[str]:
        """Return the files that a successful run should not leave."""
        names = [(path, path.name) for path in sorted(self.tree.rglob("*"))]
        return [
            str(path.relative_to(self.tree))
            for path, name in names
            if name == "lock" or ".partial" in name or ".old" in name
        ]


def last_checkpoint_read(seen: Sequence[Sequence[Seen]]) -> int:
    """Return the number of the checkpoint whose files were read last; 0 if none was."""
    read = [
        each.path for calls in seen for each in calls if each.call in ("read", "pread") and each.thing == "checkpoint"
    ]
    return (
        int(next((part for part in reversed(read[-1].split("/")) if part.isdecimal() and len(part) == 6), 0))
        if read
        else 0
    )


def _lines(path: Path) -> list[str]:
    # A rank that never came so far has none; of a job that was killed, the last line may be half.
    text = path.read_text(errors="replace") if path.exists() else ""
    return text.splitlines()


def _parse_call(line: str) -> Seen:
    call, way, path = line.split(" ", 2)
    return Seen(call, way, path)


def _sum(path: Path) -> int:
    return zlib.crc32(path.read_bytes())
