"""Prepares the data set of a pattern on this process alone; prints the bytes that it had in memory at the most."""

from __future__ import annotations

import sys
from pathlib import Path

from dliosim.execute.datasets.prepare import prepare
from dliosim.execute.payload.sample_bytes import pool_bytes
from dliosim.execute.phases.context import Options, Session
from dliosim.formats.registry import bind, import_libraries
from dliosim.language.compile import compile_pattern
from dliosim.model import Job, Prepare
from dliosim.report.progress.progress_line import ProgressLine
from tests.execute.alone import world_of_one


def status(name: str) -> int:
    """Return a line of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def main(pattern: str, data: str) -> None:
    """Prepare, and print."""
    workload, _ = compile_pattern(Path(pattern), [], Job(1))
    (verb,) = workload.verbs
    assert isinstance(verb, Prepare)
    dataset = workload.dataset(verb.dataset)
    session = Session(workload, world_of_one(), {"data": Path(data)}, Options(), ProgressLine(None))
    import_libraries(bind(dataset))
    pool_bytes(1)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins again
    before = status("VmRSS")
    prepare(session, verb, dataset)
    sys.stdout.write(f"{status('VmHWM') - before}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
