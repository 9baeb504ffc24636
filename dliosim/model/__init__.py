"""What a pattern says, resolved: frozen dataclasses with plain ints of bytes and floats of seconds."""

from dliosim.model.access import PAGE, Access, Api, Communicator, Engine, HintSet, Order, ranks_together
from dliosim.model.checkpoint import Checkpoint, Part, Writers
from dliosim.model.dataset import Dataset, Layout, Stripe
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
    "PAGE",
    "Access",
    "Api",
    "Arrivals",
    "Barrier",
    "Cadence",
    "Checkpoint",
    "Communicator",
    "Compute",
    "Dataset",
    "Distribution",
    "DropCaches",
    "Engine",
    "Evaluation",
    "Expectation",
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
    "Shuffle",
    "Stripe",
    "Sync",
    "Verb",
    "Workload",
    "Writers",
    "constant",
    "ranks_together",
]
