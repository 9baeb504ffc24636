"""What a pattern says, resolved: frozen dataclasses with plain ints of bytes and floats of seconds."""

from dliosim.model.access import PAGE, Access, Api, Communicator, Engine, HintSet, Order, Through, ranks_together
from dliosim.model.checkpoint import Checkpoint, Part, Writers
from dliosim.model.dataset import ELEMENTS, Chunk, Compression, Dataset, Finder, Found, Layout, Shape, Stripe
from dliosim.model.distributions import Distribution, constant
from dliosim.model.job import Job
from dliosim.model.verbs import (
    Arrivals,
    Barrier,
    Cadence,
    Compute,
    DropCaches,
    Evaluation,
    Loop,
    Pause,
    Prepare,
    Repeat,
    Restore,
    Save,
    Shuffle,
    Sync,
    Verb,
)
from dliosim.model.workload import Expectation, Workload

__all__ = [
    "ELEMENTS",
    "PAGE",
    "Access",
    "Api",
    "Arrivals",
    "Barrier",
    "Cadence",
    "Checkpoint",
    "Chunk",
    "Communicator",
    "Compression",
    "Compute",
    "Dataset",
    "Distribution",
    "DropCaches",
    "Engine",
    "Evaluation",
    "Expectation",
    "Finder",
    "Found",
    "HintSet",
    "Job",
    "Layout",
    "Loop",
    "Order",
    "Part",
    "Pause",
    "Prepare",
    "Repeat",
    "Restore",
    "Save",
    "Shape",
    "Shuffle",
    "Stripe",
    "Sync",
    "Through",
    "Verb",
    "Workload",
    "Writers",
    "constant",
    "ranks_together",
]
