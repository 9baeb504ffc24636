import subprocess
import sys

import pytest

HEAVY = ("tabulate", "h5py", "lark", "mpi4py", "dliosim.report")


@pytest.mark.parametrize(
    "modules",
    [
        "dliosim.measure.figures.summary, dliosim.measure.answers.answer, dliosim.measure.rank.meter",
        "dliosim.report.run.screen, dliosim.report.files.results, dliosim.report.progress.progress_line",
    ],
)
def test_measuring_and_reporting_import_no_library_that_most_ranks_do_not_need(modules):
    heavy = HEAVY if "report" not in modules else HEAVY[:-1]
    code = f"import sys, {modules}; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
