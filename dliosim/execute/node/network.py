"""The network links of this node, as Linux describes them."""

from __future__ import annotations

from pathlib import Path


def link_speed(devices: Path = Path("/sys/class")) -> int:
    """Return the speed of all network links of this node together, in Mb/s; 0 if the kernel does not know it.

    Cards that are Ethernet and InfiniBand at the same time count once. Virtual links without a card do not count.
    """
    cards = [_read_speed(card / "speed") for card in (devices / "net").glob("*") if (card / "device").exists()]
    ports = [1000 * _read_speed(rate) for rate in (devices / "infiniband").glob("*/ports/*/rate")]
    return max(sum(cards), sum(ports))


def _read_speed(path: Path) -> int:
    """Return the number at the begin of a file; 0 if there is none, as for a card without a cable (-1)."""
    try:
        return max(int(float(path.read_text().split()[0])), 0)
    except (OSError, ValueError, IndexError, OverflowError):
        return 0
