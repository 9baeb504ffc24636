"""What nodes tell each other of a stall, by a file each and without MPI, which may be what hangs.

A thread of its own writes and reads them, as storage may be what hangs, too.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns

from dliosim.measure.stalled_ranks import RankStatus, format_statuses, parse_statuses

#: Bytes of a node's file that are read: a rank takes 600, a node has 1000.
_LARGEST = 4 << 20


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What a node says: for how many seconds nothing of it has moved, and if it `stalls` what is known of its ranks."""

    quiet: float
    seen: Sequence[RankStatus] = ()
    stalls: bool = False


@dataclass(frozen=True, slots=True)
class NodeReports:
    """What the other nodes have said, by node, read at a time of perf_counter_ns."""

    read: int = 0
    words: Mapping[int, tuple[float, tuple[RankStatus, ...]]] = field(default_factory=dict)


class ReportExchange(threading.Thread):
    """Says what `word` holds every `pause` seconds, as long as some node stalls; `answer` is what the others say.

    Without a word it is another process that speaks for the node.
    """

    def __init__(self, folder: Path, node: int, nodes: int, pause: float) -> None:
        super().__init__(name="nodes", daemon=True)
        self._files, self._nodes, self.pause = NodeFiles(folder, node), nodes, pause
        self._over = threading.Event()
        self.word: NodeReport | None = None
        self.answer = NodeReports()

    def stop(self) -> None:
        """End the thread and take this node's file away, unless that hangs."""
        self._over.set()
        self.join(1.0)

    def run(self) -> None:
        """Say it until it is over."""
        while not self._over.wait(self.pause):
            word = self.word
            if word is None:
                continue
            if word.stalls or self._files.is_asked():
                self._files.write_report(word)
                words = self._files.read_reports(self._nodes, 3 * self.pause) if word.stalls else None
                if words is not None:
                    self.answer = NodeReports(perf_counter_ns(), words)
            else:
                self._files.remove_report()
        self._files.remove_report()


class NodeFiles:
    """The files of one stall after the other in `folder`, which is there only while something stalls.

    A node that stalls writes `node-N.stalled`, and the others answer by `node-N.moving`. Nothing here raises: a place
    that cannot be written is a node from which nothing comes.
    """

    def __init__(self, folder: Path, node: int) -> None:
        self._folder, self._node = folder, node
        self._written = False

    def is_asked(self) -> bool:
        """Whether another node stalls, and wants to know about this one."""
        try:
            names = [entry.name for entry in self._folder.iterdir()]
        except OSError:
            return False
        return any(name.endswith(".stalled") and name != self._name("stalled") for name in names)

    def write_report(self, word: NodeReport) -> None:
        """Write what this node knows of itself."""
        name, other = ("stalled", "moving") if word.stalls else ("moving", "stalled")
        aside = self._folder / f".{self._name(name)}"
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            aside.write_bytes(format_statuses(word.quiet, word.seen))
            aside.replace(self._folder / self._name(name))
            (self._folder / self._name(other)).unlink(missing_ok=True)
        self._written = True

    def read_reports(self, nodes: int, oldest: float) -> dict[int, tuple[float, tuple[RankStatus, ...]]] | None:
        """What the others have said up to `oldest` seconds before this node's own last word, by node.

        None where this node's own could not be written.
        """
        found: dict[int, tuple[float, tuple[RankStatus, ...]]] = {}
        own = self._report_time(self._node)
        if own is None:
            return None
        for node in range(nodes):
            written = self._report_time(node)
            if node != self._node and written is not None and written >= own - oldest:
                with suppress(OSError, ValueError):
                    found[node] = parse_statuses(self._read_report(node))
        return found

    def remove_report(self) -> None:
        """Take this node's file away, and the folder with the last one."""
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
        """When a node wrote last, by the clock of the file system."""
        for path in self._paths(node):
            with suppress(OSError):
                return path.stat().st_mtime
        return None

    def _read_report(self, node: int) -> bytes:
        for path in self._paths(node):
            with suppress(FileNotFoundError), path.open("rb") as file:
                return file.read(_LARGEST)
        raise ValueError("it has said nothing")
