"""The cores of each node's ranks, and the node with the fewest cores a rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from mpi4py import MPI

from dliosim.execute.mpi.polling import wait
from dliosim.execute.node.environment import own_cores

if TYPE_CHECKING:
    from dliosim.execute.mpi.world import World

_MOST_CORES = 8192


class NodeLoad(NamedTuple):
    """Cores, ranks and load average of a node."""

    #: cores that the ranks may run on
    cores: int
    #: ranks on the node
    ranks: int
    #: load average over one minute
    load: float


def node_cores(node: MPI.Intracomm) -> int:
    """Count the cores that any rank of a node may run on; each rank may be bound to other ones. Collective."""
    cores = np.zeros(_MOST_CORES, np.bool_)
    cores[[core for core in own_cores() if core < _MOST_CORES]] = True
    wait(node.Iallreduce(MPI.IN_PLACE, cores, MPI.LOR), node.size)
    return int(cores.sum())


def fullest_node(world: World, load: float) -> NodeLoad:
    """Return cores and ranks of the node with the most ranks a core, and the highest load of any node. Collective.

    `load` is the load average of this rank's node. Too many ranks a core, or a high load, make figures doubtful.
    """
    cores, ranks = node_cores(world.node.comm), world.node.size
    most = world.allreduce(np.array([ranks * 1_000_000 // cores], np.int64), "max")
    here = np.array([cores, ranks] if ranks * 1_000_000 // cores == most[0] else [0, 0], np.int64)
    world.allreduce(here, "max")
    loads = world.allreduce(np.array([round(load * 100)], np.int64), "max")
    return NodeLoad(int(here[0]), int(here[1]), int(loads[0]) / 100)
