"""The command `dliosim calibrate`: a run of profiles/calibrate.dlio, and the storage that fits it, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from dliosim import PATTERNS
from dliosim.commands.job.setup import Setup
from dliosim.commands.job.terminal import print_text
from dliosim.commands.run import RunCommand
from dliosim.errors import HELP, UsageError

#: Name of the storage in the file.
_NAME = "here"

#: Options of `run` that a calibration has not.
_WITHOUT: Final[dict[str, Any]] = {
    "pattern": str(PATTERNS / "profiles" / "calibrate.dlio"),
    "override": [],
    "root": [],
    "null": False,
    "with_null": False,
    "verify": False,
    "strict": False,
    "trace": None,
    "json": False,
    "mtbf": None,
    "restart_time": None,
    "output": None,
}


class CalibrateCommand(RunCommand):
    """A run of the calibration's pattern on one node."""

    unfinished = "no storage was described"

    def __init__(self, setup: Setup) -> None:
        vars(setup.parsed).update(_WITHOUT)
        super().__init__(setup)

    def read(self) -> None:
        """Check where the description goes, and compile the pattern."""
        world, place = self.setup.world, Path(self.setup.parsed.o)

        def check_place() -> None:
            if world.nodes > 1:
                raise UsageError(
                    f"calibrate: {world.nodes} nodes; run it on one{HELP}predict takes any number of nodes"
                )
            if place.exists():
                raise UsageError(f"{place} exists{HELP}write another name behind `-o`, or remove it")

        world.run_on_rank_0("check where the description goes", check_place)
        super().read()

    def report(self) -> int:
        """Write the description and print its parameters on rank 0; return the exit status."""

        def describe() -> None:
            from dliosim.measure.calibration import calibrate
            from dliosim.report.run.calibration_lines import calibration_table, storage_text

            assert self.record is not None
            run, place = self.record.summarize(self.phases), Path(self.setup.parsed.o)
            found = calibrate(run)
            place.write_text(storage_text(found, run, _NAME))
            print_text(f"{calibration_table(found)}\nwritten: {place}\n")

        self.setup.world.run_on_rank_0("describe the storage", describe)
        return 0
