"""Reports that nodes exchange during a stall, by one file each. No MPI is used, because MPI may be what hangs.

A separate thread writes and reads the files, because storage may hang as well.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns

from dliosim.measure.progress.stalled_ranks import RankStatus, format_statuses, parse_statuses

#: Bytes of a node's file that are read at most: 600 a rank and 1000 a node are normal.
_LARGEST = 4 << 20


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The report of a node about itself."""

    #: seconds without any movement on the node
    quiet: float
    #: the state of its ranks; empty unless it stalls
    seen: Sequence[RankStatus] = ()
    #: the node stalls
    stalls: bool = False


class ReportExchange(threading.Thread):
    """Writes `word` every `pause` seconds while any node stalls, and reads the other nodes' reports into `answer`.

    If `word` is None, another process reports for this node.
    """

    def __init__(self, folder: Path, node: int, nodes: int, pause: float) -> None:
        super().__init__(name="nodes", daemon=True)
        self._files, self._nodes, self.pause = NodeFiles(folder, node), nodes, pause
        self._over = threading.Event()
        self.word: NodeReport | None = None
        #: the reports of the other nodes, by node, and when they were read, perf_counter_ns; replaced as a whole
        self.answer: tuple[Mapping[int, NodeReport], int] = {}, 0

    def stop(self) -> None:
        """End the thread, which removes this node's file; give up after a second if it hangs."""
        self._over.set()
        self.join(1.0)

    def run(self) -> None:
        """Write and read reports until `stop` is called."""
        while not self._over.wait(self.pause):
            word = self.word
            if word is None:
                continue
            if word.stalls or self._files.is_asked():
                self._files.write_report(word)
                words = self._files.read_reports(self._nodes, 3 * self.pause) if word.stalls else None
                if words is not None:
                    self.answer = words, perf_counter_ns()
            else:
                self._files.remove_report()
        self._files.remove_report()


class NodeFiles:
    """The files of the nodes in `folder`, which exists only during a stall.

    A node that stalls writes `node-N.stalled`, and the others answer by `node-N.moving`. No method raises: a node that
    cannot write its file is a node without a report.
    """

    def __init__(self, folder: Path, node: int) -> None:
        self._folder, self._node = folder, node
        self._written = False

    def is_asked(self) -> bool:
        """Return whether another node stalls, and so needs the report of this one."""
        try:
            names = [entry.name for entry in self._folder.iterdir()]
        except OSError:
            return False
        return any(name.endswith(".stalled") and name != self._name("stalled") for name in names)

    def write_report(self, word: NodeReport) -> None:
        """Write the report of this node, atomically by a rename."""
        name, other = ("stalled", "moving") if word.stalls else ("moving", "stalled")
        aside = self._folder / f".{self._name(name)}"
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            aside.write_bytes(format_statuses(word.quiet, word.seen))
            aside.replace(self._folder / self._name(name))
            (self._folder / self._name(other)).unlink(missing_ok=True)
        self._written = True

    def read_reports(self, nodes: int, oldest: float) -> dict[int, NodeReport] | None:
        """Read the reports of the other nodes that are at most `oldest` seconds older than this node's own.

        Returns them by node; None if this node's own report could not be written.
        """
        found: dict[int, NodeReport] = {}
        own = self._report_time(self._node)
        if own is None:
            return None
        for node in range(nodes):
            written = self._report_time(node)
            if node != self._node and written is not None and written >= own - oldest:
                with suppress(OSError, ValueError):
                    found[node] = NodeReport(*parse_statuses(self._read_report(node)))
        return found

    def remove_report(self) -> None:
        """Remove this node's file, and the folder if it is empty then."""
        if self._written:
            self._written = False
            with suppress(OSError):
                for word in ("stalled", "moving"):
                    (self._folder / self._name(word)).unlink(missing_ok=True)
                self._folder.rmdir()

    def _name(self, word: str) -> str:
        return f"node-{self._node}.{word}"

    def _paths(self, node: int) -> tuple[Path, ...]:
        return tuple(self._folder / f"node-{node}.{word}" for word in ("stalled", "moving"))

    def _report_time(self, node: int) -> float | None:
        """Return when a node last wrote, seconds by the clock of the file system; None if it has no file."""
        for path in self._paths(node):
            with suppress(OSError):
                return path.stat().st_mtime
        return None

    def _read_report(self, node: int) -> bytes:
        for path in self._paths(node):
            with suppress(FileNotFoundError), path.open("rb") as file:
                return file.read(_LARGEST)
        raise ValueError("the node has written no report")
