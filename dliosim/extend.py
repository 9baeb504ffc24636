"""Everything that packages with their own formats and backends import from dliosim; docs/dev/extending.md shows it.

These names stay, wherever their modules move. Names of backends are imported on demand, so that a format loads no MPI.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from dliosim.errors import ExecutionError, UsageError
from dliosim.formats.contract_tests import check_damage, check_framed, check_resolved
from dliosim.formats.protocols import (
    ENCODED,
    Built,
    Bytes,
    Column,
    Dressed,
    EncodeTime,
    FileIndex,
    Filter,
    Format,
    Framed,
    GroupEncoder,
    Ints,
    LibraryFile,
    LibraryReadable,
    Preallocated,
    Resolved,
)
from dliosim.formats.registry import bind, format_names
from dliosim.formats.unsupported import refuse_unused
from dliosim.model import Access, Dataset, Distribution, Layout, Shape, constant

if TYPE_CHECKING:
    from dliosim.execute.backends.contract import Files, Reader, Writer
    from dliosim.execute.backends.registry import Backend, backend_names, backend_of
    from dliosim.execute.io_errors import call_error, truncation_error
    from dliosim.execute.testing.backend_contract import check_backend
    from dliosim.measure.rank.meter import Meter
    from dliosim.plan.samples.io_requests import Calls, sample_heads

__all__ = [
    "ENCODED",
    "Access",
    "Backend",
    "Built",
    "Bytes",
    "Calls",
    "Column",
    "Dataset",
    "Distribution",
    "Dressed",
    "EncodeTime",
    "ExecutionError",
    "FileIndex",
    "Files",
    "Filter",
    "Format",
    "Framed",
    "GroupEncoder",
    "Ints",
    "Layout",
    "LibraryFile",
    "LibraryReadable",
    "Meter",
    "Preallocated",
    "Reader",
    "Resolved",
    "Shape",
    "UsageError",
    "Writer",
    "backend_names",
    "backend_of",
    "bind",
    "call_error",
    "check_backend",
    "check_damage",
    "check_framed",
    "check_resolved",
    "constant",
    "format_names",
    "refuse_unused",
    "sample_heads",
    "truncation_error",
]

#: The modules of the names above that are not imported yet, those that load no MPI first.
_BACKEND_MODULES: Final = (
    *("measure.rank.meter", "plan.samples.io_requests", "execute.io_errors", "execute.backends.contract"),
    *("execute.backends.registry", "execute.testing.backend_contract"),
)


def __getattr__(name: str) -> object:
    """Import a name of a backend's contract when it is asked for."""
    for module in _BACKEND_MODULES if name in __all__ else ():
        if (found := getattr(import_module(f"dliosim.{module}"), name, None)) is not None:
            return found
    raise AttributeError(f"module 'dliosim.extend' has no attribute {name!r}")
