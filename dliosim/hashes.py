"""blake2b and sha256 as Python's own modules have them: `hashlib` loads OpenSSL as well, 0.6 MB on each rank."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, Protocol


class Hash(Protocol):
    """A hash of bytes."""

    def digest(self) -> bytes:
        """Return it as bytes."""

    def hexdigest(self) -> str:
        """Return it as hexadecimal digits."""


def _find(name: str, *modules: str) -> Any:
    """Return a function of the first of these modules that there is; other Pythons have only `hashlib`."""
    for module in modules:
        with suppress(ImportError, AttributeError):
            return getattr(import_module(module), name)
    return getattr(import_module("hashlib"), name)


blake2b: Callable[..., Hash] = _find("blake2b", "_blake2")
sha256: Callable[..., Hash] = _find("sha256", "_sha2", "_sha256")  # the first from Python 3.12 on
