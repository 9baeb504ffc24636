"""Reading of logs in a process of its own, with limits; whatever happens to it becomes one message."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, BinaryIO, cast

from dliosim.analyze.darshan.child import LONGEST, MOST_MEMORY
from dliosim.analyze.darshan.frames import Frame, read_frames
from dliosim.errors import HELP, TraceError, UsageError, install_hint
from dliosim.readable import printable

#: Seconds that the process may take to end.
_PATIENCE = 10

#: Endings of the process by a signal, in words.
_SIGNALS = {
    signal.SIGALRM: f"reading it took longer than {LONGEST} s",
    signal.SIGKILL: "its reader was killed, perhaps for want of memory",
}


def read_logs(paths: Sequence[Path], what: str = "logs") -> Iterator[Frame]:
    """Yield the frames of logs, or with `what` as `jobs` those of their jobs; each log's last is `end`.

    Raises UsageError without PyDarshan, TraceError where a log is cut or damaged.
    """
    if importlib.util.find_spec("darshan") is None:
        raise UsageError(f"{paths[0]} is a Darshan log, which needs PyDarshan{HELP}{install_hint('darshan')}")
    # Many threads of numerical libraries would need more memory than a log.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "dliosim.analyze.darshan.child", what, *(str(path.absolute()) for path in paths)]
    with (
        tempfile.TemporaryFile() as messages,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=messages, env=environment
        ) as child,
    ):
        ended, frames = 0, cast(BinaryIO, child.stdout)
        try:
            for frame in read_frames(frames):
                ended += frame.kind == "end"
                yield frame
        except ValueError:
            pass  # the last frame is cut: its log has no end
        finally:
            # Now it can write no more, and ends.
            frames.close()
            try:
                status = child.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                child.kill()
                status = child.wait()
        if ended < len(paths):
            raise TraceError(f"{paths[ended]} cannot be read: {_reason(status, messages)}")


def _reason(status: int, messages: IO[bytes]) -> str:
    """Return in words why the process that reads a log ended early."""
    messages.seek(0)
    lines = messages.read(1 << 16).decode(errors="replace").splitlines()
    said = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    if status < 0:
        return _SIGNALS.get(signal.Signals(-status), f"PyDarshan crashed on it: {signal.Signals(-status).name}")
    if any("MemoryError" in line or "not enough memory" in line for line in lines):
        return f"it needs more than {MOST_MEMORY >> 30} GiB of memory"
    return printable(said[0]) if said else printable(lines[-1]) if lines else f"its reader ended with {status}"
