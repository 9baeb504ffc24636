"""Bundles: results with all that an artifact evaluation needs, as one zip file that `report` and `audit` read."""

from __future__ import annotations

import io
import shlex
import zipfile
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from dliosim.errors import UsageError
from dliosim.measure.figures.declaration import Lines
from dliosim.report.files.results import write_new
from dliosim.report.reader.bundle import ENVIRONMENT, FILES, MAX_BYTES, MAX_FOLDERS, PATTERN, README, SUMS
from dliosim.report.reader.load import SavedComparison, SavedRun
from dliosim.report.reader.typed_json import check_file, read_json, read_member
from dliosim.report.run.conditions import environment_rows

_README = """Results of dliosim. Each folder has figures, the machine, and the pattern that its command names.
`dliosim report {name}` shows the figures, `dliosim audit {name}` what a reviewer would object to.
"""


def write_bundle(path: Path, places: Sequence[Path], results: Sequence[SavedRun | SavedComparison]) -> None:
    """Write the results of directories to a new zip file, whole or not at all.

    Raises UsageError for results that make no bundle, and ExecutionError if it cannot be written or is there already.
    """
    if path.suffix != ".zip" or not all(place.is_dir() for place in places) or len(places) > MAX_FOLDERS:
        raise UsageError(f"--bundle takes FILE.zip, and at most {MAX_FOLDERS} directories of results")
    if sum(one.stat().st_size for place in places for one in place.iterdir() if one.name in FILES) > MAX_BYTES:
        raise UsageError(f"--bundle {path}: the results have more than {MAX_BYTES} bytes: make several bundles")
    files = dict(_list_files(path, places, results))
    files[SUMS] = "".join(f"{sha256(content).hexdigest()}  {name}\n" for name, content in files.items()).encode()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    write_new(path, content.getbuffer())


def _list_files(
    path: Path, places: Sequence[Path], results: Sequence[SavedRun | SavedComparison]
) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of all files but the sums."""
    readme = _README.format(name=path.name)
    for number, (place, saved) in enumerate(zip(places, results, strict=True), 1):
        result = saved.run if isinstance(saved, SavedRun) else saved.comparison
        found = [one for one in FILES if (place / one).exists()]
        content = read_json(place / found[0])
        words = read_member(tuple[str, ...], content, "arguments")
        rows = environment_rows(result.environment, result.ranks, result.nodes)
        command = shlex.join(["mpiexec", "-n", str(result.ranks), "dliosim", *words])
        readme += f"\n{number:03d}  {saved.label}\n     {command}\n"
        yield f"{number:03d}/{PATTERN}", read_member(Lines, content, "pattern").encode()
        yield f"{number:03d}/{ENVIRONMENT}", "".join(f"{name}: {text}\n" for name, text in rows).encode()
        for name in found:
            check_file(place / name, MAX_BYTES)
            yield f"{number:03d}/{name}", (place / name).read_bytes()
    yield README, readme.encode()
