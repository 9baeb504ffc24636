"""Run `dliosim run` with no more memory than it has after it was imported, and some; print the most that was resident.

`python -m tests.mpi.memory_program BYTES ARGUMENTS…`
"""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

from mpi4py import MPI

import dliosim.execute.run.workload_runner
from dliosim import cli


def main() -> None:
    assert MPI.Is_initialized() and dliosim.execute.run.workload_runner  # both are of what the interpreter needs
    found = re.search(r"^VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    most = int(found[1]) * 1024 + int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    status = cli.main(["run", *sys.argv[2:]])
    print(f"resident {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}")
    sys.exit(status)


if __name__ == "__main__":
    main()
