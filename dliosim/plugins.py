"""Formats and backends by name, with those of other packages: one registry for reading and running patterns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dliosim.errors import UsageError
from dliosim.model import MPI_APIS

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints


def find_entry_points(group: str) -> EntryPoints:
    """Return the entry points of a group, by which other packages add formats and backends."""
    from importlib.metadata import entry_points  # slower than all formats together, and few runs need others

    return entry_points(group=group)


@dataclass(frozen=True, slots=True)
class Registry:
    """The names of one kind: those of this package, and those that others provide by an entry point."""

    kind: str  #: setting that has the name
    group: str  #: group of the entry points
    own: tuple[str, ...]  #: names of this package
    reserved: tuple[str, ...] = ()  #: names that no package may take

    def __contains__(self, name: str) -> bool:
        """Return True if there is such a name; other packages are looked for only if it is none of this one."""
        return name in self.own or name in self.names()

    def names(self) -> tuple[str, ...]:
        """Return all names, those of other packages last."""
        others = {point.name for point in find_entry_points(self.group)}
        return (*self.own, *sorted(others - {*self.own, *self.reserved}))

    def load(self, name: str) -> tuple[object, str]:
        """Return the object that another package provides under a name, and that package; KeyError if none does.

        UsageError [R403] if it cannot be loaded.
        """
        found = () if name in self.reserved else find_entry_points(self.group)
        point = next((point for point in found if point.name == name), None)
        if point is None:
            raise KeyError(name)
        try:
            return point.load(), point.value
        except Exception as error:  # the import of another package may raise anything
            text = f"{self.kind} `{name}` cannot be loaded from `{point.value}`: {type(error).__name__}: {error}"
            raise UsageError(text, "R403") from error


#: The apis. Reserved are names in the column `api` of phases that no api reads.
APIS: Final = Registry("api", "dliosim.backends", ("posix", *MPI_APIS), ("null", "library"))
