"""What nodes tell each other of a stall, by a file each and without MPI, which may be what hangs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dliosim.measure.stalled import Seen, from_json, to_json

#: Bytes of a node's file that are read: a rank takes 600, a node has 1000.
_LARGEST = 4 << 20


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

    def tell(self, quiet: float, seen: Sequence[Seen], stalls: bool) -> None:
        """Write what this node knows of itself."""
        name, other = ("stalled", "moving") if stalls else ("moving", "stalled")
        aside = self._folder / f".{self._name(name)}"
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            aside.write_bytes(to_json(quiet, seen))
            aside.replace(self._folder / self._name(name))
            (self._folder / self._name(other)).unlink(missing_ok=True)
        self._written = True

    def others(self, nodes: int, oldest: float) -> dict[int, tuple[float, tuple[Seen, ...]]]:
        """What the others have said up to `oldest` seconds before this node's own last word, by node."""
        found: dict[int, tuple[float, tuple[Seen, ...]]] = {}
        own = self._time(self._node)
        for node in range(nodes):
            written = self._time(node)
            if node != self._node and written is not None and own is not None and written >= own - oldest:
                with suppress(OSError, ValueError):
                    found[node] = from_json(self._read(node))
        return found

    def clear(self) -> None:
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

    def _time(self, node: int) -> float | None:
        """When a node wrote last, by the clock of the file system."""
        for path in self._paths(node):
            with suppress(OSError):
                return path.stat().st_mtime
        return None

    def _read(self, node: int) -> bytes:
        for path in self._paths(node):
            with suppress(FileNotFoundError), path.open("rb") as file:
                return file.read(_LARGEST)
        raise ValueError("it has said nothing")
