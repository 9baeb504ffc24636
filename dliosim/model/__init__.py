"""A resolved pattern: frozen dataclasses with bytes as int and seconds as float."""

from dliosim.model.access import MPI_APIS, Access, Api, By, Engine, HintSet, communicator_size
from dliosim.model.checkpoint import Background, Checkpoint, Copies, Pace, Writers
from dliosim.model.dataset import (
    ELEMENTS,
    LARGEST_SAMPLE,
    Chunk,
    Columns,
    Compression,
    Dataset,
    FileSurvey,
    Finder,
    Layout,
    Shape,
    Stripe,
)
from dliosim.model.distributions import Distribution, constant
from dliosim.model.expectation import EXPECTABLE, Expectation
from dliosim.model.job import Job
from dliosim.model.joined import JoinedDataset, Sources
from dliosim.model.storage import CallSizes, Servers, StorageModel
from dliosim.model.transformer import OPTIMIZERS, TYPES, Part, Scope, Split, Transformer
from dliosim.model.verbs import (
    Arrivals,
    Barrier,
    Cadence,
    Compute,
    Convert,
    DropCaches,
    Evaluation,
    Loop,
    Pause,
    Prepare,
    Preprocess,
    Repeat,
    Restore,
    Save,
    Shuffle,
    Stage,
    Sync,
    Verb,
)
from dliosim.model.workload import Workload
