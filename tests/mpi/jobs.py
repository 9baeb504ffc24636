"""Small patterns, run as a user runs them, and what they leave behind."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dliosim.report.reader.load import SavedRun, load_results
from dliosim.report.run.screen import run_report
from tests.mpi.waiting import run_command

HEAD = 'dlio 1\nworkload tiny "a test"\n'

#: 41 samples of varying sizes, 250 kB: no batch and no number of ranks divides them.
DATASET = """
dataset d {
    samples  41
    size     uniform(3000 B, 9000 B)
    layout   shared file
    header   100 B
    path     "d"
}
"""

CHECKPOINT = """
checkpoint c {
    part     weights 300 kB total
    part     state 1001 B per rank
    path     "c"
}
"""

PREPARE = "prepare d\n"

TRAIN = """
train {
    read     d
    batch    4 per rank
    epochs   2
    shuffle  samples globally each epoch
}
"""

CLI = ("-m", "dliosim.cli")


@dataclass(frozen=True)
class Place:
    """A directory with a pattern, its data and its results."""

    directory: Path

    @property
    def data(self) -> Path:
        """The directory of data sets."""
        return self.directory / "data"

    @property
    def output(self) -> Path:
        """The directory of results."""
        return self.directory / "out"

    def write(self, *parts: str) -> Path:
        """Write the pattern of these parts."""
        pattern = self.directory / "tiny.dlio"
        pattern.write_text(HEAD + "".join(parts))
        return pattern

    def arguments(self, *options: str, define: dict[str, str] | None = None) -> list[str]:
        """The command line of a run, after python."""
        return [*CLI, *self.command(*options, define=define)]

    def command(self, *options: str, define: dict[str, str] | None = None) -> list[str]:
        """The command line of a run, after dliosim."""
        overrides = [word for name, value in (define or {}).items() for word in ("-D", f"{name}={value}")]
        places = ["--dir", str(self.data), "--output", str(self.output)]
        return ["run", str(self.directory / "tiny.dlio"), *places, *overrides, *options]

    def run(
        self, ranks: int, *options: str, define: dict[str, str] | None = None, seconds: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run the pattern on ranks that wait for such, however it ends; the results of a run before it make room."""
        (self.output / "results.json").unlink(missing_ok=True)
        return run_command(ranks, self.command(*options, define=define), self.directory, seconds)

    def results(self, ranks: int, *options: str, define: dict[str, str] | None = None) -> dict[str, Any]:
        """Run the pattern, which must succeed; its results."""
        done = self.run(ranks, *options, define=define)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        content: dict[str, Any] = json.loads((self.output / "results.json").read_text())
        return content

    def tables(self) -> str:
        """All tables of the last run, in one line."""
        (saved,) = load_results([str(self.output)], with_arrays=False)
        assert isinstance(saved, SavedRun)
        return " ".join(run_report(saved.run, {one.title: one.latencies for one in saved.loops}).split())

    def files(self, pattern: str = "d/*/*.raw") -> list[Path]:
        """Data files, in order."""
        return sorted(self.data.glob(pattern))


def phases(results: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """The phases of a kind."""
    return [phase for phase in results["phases"] if phase["kind"] == kind]


def only_error(done: subprocess.CompletedProcess[str], status: int = 1) -> str:
    """The one message of a job that failed; fails if there is none, or are several, or a traceback."""
    text = done.stderr + done.stdout
    assert done.returncode == status, text
    found = re.findall(r"^(error(?:\[\w+\])?: .*)$", text, re.MULTILINE)
    assert len(found) == 1, f"{len(found)} messages: {text}"
    assert "Traceback" not in text, text
    return str(found[0])
