"""The lines of docs/running.md and docs/start.md for a cluster, typed: with stand-ins for what only a cluster has.

The interpreter that they make finds nothing but what their pip line installs. (.ci/run types the other lines of the
README and of docs/start.md.)
"""

from __future__ import annotations

import re
import subprocess
import sys
from configparser import ConfigParser
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from itertools import pairwise
from pathlib import Path

import pytest

from dliosim.compare.experiment import parse_varied
from dliosim.compare.variants import compile_variants
from dliosim.model import Job
from tests.scripts.stubs import PAGES, RECORDS, ROOT, calls, environment, stub

CLUSTER = (ROOT / "docs" / "running.md").read_text(encoding="utf-8").partition("\n## Exit codes")[0]
START = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
[ON_CLUSTER] = [line for line in START.splitlines() if " && srun " in line]

#: A finder of modules that does not find those that a file next to it names.
SITE = """
import pathlib, sys
absent = set(pathlib.Path(__file__).with_name("absent").read_text().split())

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Absent())
"""

#: `python3 -m venv env`: {site} has the finder.
MAKES_ENV = (
    RECORDS
    + """
[ "$*" = "-m venv env" ] || exit 1
mkdir -p env/bin
printf '#!/bin/sh\\nprintf "%%s\\\\n" "$@" >>"$0.log"\\n' >env/bin/pip
printf '#!/bin/sh\\nPYTHONPATH={site}:{root} exec {python} "$@"\\n' >env/bin/python
printf '#!/bin/sh\\nexec "$(dirname "$0")/python" -m dliosim.cli "$@"\\n' >env/bin/dliosim
chmod +x env/bin/*
"""
)

#: Runs the script as a job of its own, which says in a file how it ended; itself it only says that there is a job.
SBATCH = (
    RECORDS
    + """
while [ "${1#--}" != "$1" ]; do
    case $1 in --*=*) shift; continue ;; --nodes) nodes=$2 ;; --ntasks-per-node) each=$2 ;; esac
    shift 2
done
export SLURM_SUBMIT_DIR=$PWD SLURM_JOB_ID=$$ SLURM_NTASKS=$((nodes * each)) SLURM_JOB_NUM_NODES=$nodes
cp "$1" spooled; shift
bash spooled "$@" </dev/null >job-$$.log 2>&1
echo "status $?" >>job-$$.log
"""
)
QSUB = (
    RECORDS
    + """
[ "$1 $2" = "-v ARGUMENTS" ] && [ "$4" = select=4:ncpus=32:mpiprocs=32 ] || exit 1
for node in 1 2 3 4; do for rank in $(seq 32); do echo node$node; done; done >hosts
PBS_O_WORKDIR=$PWD PBS_JOBID=$$.server PBS_NODEFILE=$PWD/hosts bash "$5" </dev/null >job-$$.log 2>&1
echo "status $?" >>job-$$.log
"""
)


def extras() -> dict[str, list[str]]:
    """Return what setup.cfg installs for each extra, and always under the empty name."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    found = {name: text.split("\n") for name, text in setup["options.extras_require"].items()}
    return {**found, "": setup["options"]["install_requires"].split("\n")}


def project(requirement: str) -> str:
    name = re.match(r"[\w.-]*", requirement)
    assert name is not None
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def absent(named: list[str]) -> set[str]:
    """The modules that are installed here and that dliosim with these extras does not bring."""
    left, brought = [each for name in ["", *named] for each in extras()[name]], {"dliosim"}
    while left:
        requirement = left.pop()
        if "extra ==" in requirement or not requirement or project(requirement) in brought:
            continue
        brought.add(project(requirement))
        try:
            left += requires(project(requirement)) or []
        except PackageNotFoundError:
            continue  # for another system
    found = packages_distributions().items()
    return {module for module, owners in found if not {project(owner) for owner in owners} & brought}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout on a login node."""
    for name in "patterns", "scripts":
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    stub(tmp_path / "bin", "python3", MAKES_ENV.format(site=tmp_path / "site", root=ROOT, python=sys.executable))
    stub(tmp_path / "bin", "sbatch", SBATCH)
    stub(tmp_path / "bin", "qsub", QSUB)
    for name in "module", "srun", "mpiexec", "scancel":
        stub(tmp_path / "bin", name)
    return tmp_path


def type_lines(checkout: Path, lines: str, named: list[str]) -> subprocess.CompletedProcess[str]:
    (checkout / "site" / "absent").write_text("\n".join(absent(named)))
    env = environment({"PATH": f"{checkout / 'bin'}:/usr/bin:/bin"})
    del env["PYTHON"]
    return subprocess.run(
        ["bash", "-c", lines], cwd=checkout, env=env, capture_output=True, text=True, timeout=300, check=False
    )


def extras_of(lines: str) -> list[str]:
    """The extras that the one pip line among these names."""
    [named] = re.findall(r"pip install .*?'?\.(?:\[([\w,]+)\])?'?(?: |$)", lines, re.MULTILINE)
    return [name for name in named.split(",") if name]


def test_every_extra_that_is_named_anywhere_exists() -> None:
    texts = [
        *PAGES,
        *(ROOT / "dliosim").rglob("*.py"),
        *(one for kind in ("py", "sh", "sbatch") for one in (ROOT / "scripts").rglob(f"*.{kind}")),
    ]
    found = {
        name
        for path in texts
        if path.is_file()
        for names in re.findall(r"(?:dliosim|'\.)\[([a-z,]+)\]'", path.read_text(encoding="utf-8"))
        for name in names.split(",")
    }
    assert {"mpich", "formats", "report"} <= found <= set(extras())


def test_the_lines_for_a_cluster_need_nothing_but_what_they_install(checkout: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", CLUSTER, re.MULTILINE | re.DOTALL)
    assert len(re.findall("^```", CLUSTER, re.MULTILINE)) == 2 * len(blocks)
    install, slurm, pbs, by_signal, comparison, scaling, by_hand, cross_check = blocks
    named = extras_of(install)
    done = type_lines(checkout, f"set -e\n{install}{slurm}{pbs}{by_signal}{comparison}{scaling}", named)
    assert (done.returncode, done.stderr) == (0, "")
    assert calls(checkout / "bin" / "module") == ["load", "gcc", "openmpi"]
    logs = [path.read_text() for path in checkout.glob("job-*.log")]
    assert len(logs) == 6
    for log in logs:  # the stand-ins leave no results, which is the only thing that is wrong
        assert log.endswith("status 1\n") and ("the launcher's exit status is 0" in log), log
        assert "error" not in log and "Traceback" not in log, log
    for launcher in "srun", "mpiexec":
        words = calls(checkout / "bin" / launcher)
        assert words.count("files=65536") == 1 and "patterns/cosmoflow.dlio" in words
    words = calls(checkout / "bin" / "srun")
    compared = words[words.index("compare") : words.index("main.epochs=1") + 1]
    vary = [value for option, value in pairwise(compared) if option == "--vary"]
    found, _ = compile_variants(ROOT / compared[1], [("main.epochs", "1")], Job(32, 4), parse_varied(vary), "main")
    assert len(found.variants) == 3

    done = type_lines(checkout, by_hand, named)
    assert done.returncode == 1 and "no results for ranks 1 2 4 8" in done.stderr
    done = type_lines(checkout, cross_check.replace("/scratch/me", "scratch"), named)
    assert done.returncode == 2 and "--place scratch: there is no such directory" in done.stderr


def test_the_first_line_for_a_cluster_needs_nothing_but_what_it_installs(checkout: Path) -> None:
    done = type_lines(checkout, ON_CLUSTER, extras_of(ON_CLUSTER.partition(" && srun ")[0]))
    assert (done.returncode, done.stderr) == (0, "")
    assert calls(checkout / "bin" / "srun")[:5] == ["-n", "512", "env/bin/dliosim", "run", "patterns/cosmoflow.dlio"]


def test_a_plain_install_takes_every_shipped_pattern_that_names_no_extra(checkout: Path) -> None:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "patterns").glob("*.dlio")}
    needy = sorted(name for name, text in texts.items() if "pip install '.[" in text)
    assert needy == ["dlrm", "dlrm_labels", "flux", "retinanet"]
    lines = "python3 -m venv env && env/bin/dliosim check patterns/*.dlio"
    done = type_lines(checkout, lines, [])
    assert done.stdout.count(": ok (") == len(texts) - len(needy), done.stderr
    assert sorted(re.findall(r"--> patterns/(\w+)\.dlio", done.stderr)) == needy
