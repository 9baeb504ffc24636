"""The command `dliosim calibrate`: a run of profiles/calibrate.dlio, and the storage that fits it, as a file."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from dliosim import PATTERNS
from dliosim.commands.job.setup import Setup
from dliosim.commands.job.terminal import print_text
from dliosim.commands.run import RunCommand
from dliosim.errors import HELP, UsageError
from dliosim.execute.mpi.world import World, run_on_some
from dliosim.execute.phases.context import Phase, PhaseLog
from dliosim.execute.run.workload_runner import run_verbs, run_workload
from dliosim.measure.calibration import SINGLE, calibrate
from dliosim.model import Job, Loop
from dliosim.readable import size

#: Bytes of the files of each rank: those for small reads, for large reads, for opens and for saves.
_LARGE: Final = (16_384 << 12) + (256 << 20) + (256 << 12) + (64 << 20)


class CalibrateCommand(RunCommand):
    """A run of the calibration's pattern on one node."""

    unfinished = "no storage was described"

    def __init__(self, setup: Setup) -> None:
        setup.parsed.pattern = str(PATTERNS / "profiles" / "calibrate.dlio")
        super().__init__(setup)

    def read(self) -> None:
        """Check where the description goes, and compile the pattern."""
        world, place = self.setup.world, Path(self.setup.parsed.o)

        def check_place() -> None:
            if world.nodes > 1:
                raise UsageError(
                    f"calibrate: {world.nodes} nodes; run it on one{HELP}predict takes any number of nodes"
                )
            if os.path.lexists(place):
                raise UsageError(f"{place} exists{HELP}write another name behind `-o`, or remove it")
            if not place.parent.is_dir():
                raise UsageError(f"-o {place}: there is no directory {place.parent}; make it first")

        world.run_on_rank_0("check where the description goes", check_place)
        super().read()

    def run(self) -> None:
        """Run the loops that ask as much as the node can on all ranks, and those of one call at a time on rank 0."""
        workload, world = self.workload, self.session.world
        single = tuple(one for one in workload.verbs if isinstance(one, Loop) and one.name in SINGLE)
        others = tuple(one for one in workload.verbs if one not in single)
        phases = run_workload(replace(self.session, workload=replace(workload, verbs=others)))

        def run_alone(part: World) -> list[Phase]:
            alone = replace(workload, job=Job(1), verbs=single)
            return run_verbs(replace(self.session, world=part, workload=alone, finished=PhaseLog()), single)

        self.phases = phases + run_on_some(world, 1, run_alone)

    def report(self) -> int:
        """Write the description and print its parameters on rank 0; return the exit status."""

        def describe() -> None:
            from dliosim.report.run.calibration_lines import calibration_table, list_doubts, storage_text

            assert self.record is not None
            run, place = self.record.summarize(self.phases), Path(self.setup.parsed.o)
            found = calibrate(run)
            doubts = list_doubts(found, run)
            print_text("\n".join([*doubts, *[""][: len(doubts)], calibration_table(found)]))
            with place.open("x", encoding="utf-8") as file:
                file.write(storage_text(found, run, _name_storage(place)))
            with self.setup.partial.final_write():
                self.record.directory.remove_partial()
            data = self.session.roots["data"] / "calibrate"
            kept = "" if run.modelled else f"data that can be removed: {data} ({size(_LARGE * run.ranks, 2)})\n"
            print_text(f"\nwritten: {place}\n{kept}")

        self.setup.world.run_on_rank_0("describe the storage", describe)
        return 0


def _name_storage(place: Path) -> str:
    """Return a name of the language for a storage, by that of its file."""
    name = re.sub(r"\W", "_", place.stem, flags=re.ASCII)
    return name if re.match("[A-Za-z_]", name) else f"storage_{name}"
