"""Bundles: results with all that an artifact evaluation needs, as one zip file that `report` and `audit` read.

Bundles of any source are unpacked into a directory of their own while they are read.
"""

from __future__ import annotations

import io
import re
import shlex
import stat
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from dliosim.errors import HELP, UsageError
from dliosim.measure.figures.declaration import Lines
from dliosim.measure.results.machine import Environment
from dliosim.report.files.results import COMPARE, PARTIAL, RANKS, RESULTS, ROWS, TIMELINE, write_new
from dliosim.report.reader.typed_json import check_file, read_json, read_member
from dliosim.report.run.conditions import environment_rows

#: The most folders, and the most bytes, of the file and of all that is in it.
MAX_FOLDERS, MAX_BYTES = 100, 2 << 30

#: Files of a folder that come from results, the one that says what they are first.
_FILES: Final = (COMPARE, RESULTS, PARTIAL, ROWS, RANKS, TIMELINE)
_SUMS: Final = "SHA256SUMS"
_IN_FOLDERS: Final = "|".join(map(re.escape, (*_FILES, "pattern.dlio", "environment.txt")))
_NAME: Final = re.compile(rf"README\.txt|{_SUMS}|[0-9]{{3}}(?:-[\w.+-]{{1,60}})?/(?:{_IN_FOLDERS})", re.ASCII)
#: Bytes of the directory of a zip file, at most: of an entry for each file.
_MAX_DIRECTORY: Final = 300 * MAX_FOLDERS * (len(_FILES) + 3)

# Errors of zipfile and zlib about damaged files; NotImplementedError is a RuntimeError.
_DAMAGE: Final = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OverflowError, OSError)

_README: Final = """Results of dliosim. Each folder has figures, the machine, and the pattern that its command names.
`dliosim report {name}` shows the figures, `dliosim audit {name}` what a reviewer would object to.
"""


def write_bundle(path: Path, places: Sequence[Path]) -> None:
    """Write directories of results, which were read before, to a new zip file, whole or not at all.

    Raises UsageError for results that make no bundle, and ExecutionError if it cannot be written or is there already.
    """
    if path.suffix != ".zip":
        raise UsageError(f"--bundle {path}: a bundle is a zip file: name it {path}.zip")
    if others := [place for place in places if not place.is_dir()] or places[MAX_FOLDERS:]:
        raise UsageError(f"--bundle takes at most {MAX_FOLDERS} directories of results, and no {others[0]}")
    try:
        if sum(one.stat().st_size for place in places for one in place.iterdir() if one.name in _FILES) > MAX_BYTES:
            raise UsageError(f"--bundle {path}: the results have more than {MAX_BYTES} bytes: make several bundles")
        files = dict(_list_files(path.name, places))
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error
    files[_SUMS] = "".join(f"{sha256(data).hexdigest()}  {name}\n" for name, data in files.items()).encode()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    write_new(path, content.getbuffer())


def _list_files(name: str, places: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of all files but the sums."""
    readme = _README.format(name=name)
    for number, place in enumerate(places, 1):
        # The name says which run warmed up.
        folder = f"{number:03d}-{re.sub(r'[^A-Za-z0-9_.+-]', '_', place.resolve().name)[:60] or 'results'}"
        files = [place / one for one in _FILES if (place / one).exists()]
        content = read_json(files[0])
        ranks, nodes = (read_member(int, content, key) for key in ("ranks", "nodes"))
        words = read_member(tuple[str, ...], content, "arguments")
        rows = environment_rows(read_member(Environment, content, "environment"), ranks, nodes)
        readme += f"\n{folder}  {shlex.join(['mpiexec', '-n', str(ranks), 'dliosim', *words])}\n"
        yield f"{folder}/pattern.dlio", read_member(Lines, content, "pattern").encode()
        yield f"{folder}/environment.txt", "".join(f"{name}: {text}\n" for name, text in rows).encode()
        for file in files:
            if file.is_symlink():  # it may lead to a file that is no result
                raise UsageError(f"{file} is a link, and a bundle takes files alone")
            check_file(file, MAX_BYTES)
            yield f"{folder}/{file.name}", file.read_bytes()
    yield "README.txt", readme.encode()


@contextmanager
def unpack_bundle(path: Path) -> Iterator[list[Path]]:
    """Yield the directories of results in a bundle, which are removed afterwards.

    UsageError if the bundle or, where the block reads them, results in it are damaged.
    """
    check_file(path, MAX_BYTES)
    with TemporaryDirectory(prefix="dliosim-") as place:
        try:
            _check_directory(path)
            with zipfile.ZipFile(path) as archive:
                _unpack(archive, Path(place))
            yield sorted(one for one in Path(place).iterdir() if one.is_dir())
        except UsageError as error:
            raise UsageError(error.message.partition(HELP)[0].replace(place, str(path))) from error
        except _DAMAGE as error:
            raise UsageError(f"{path} is no whole bundle of dliosim: {error}".replace(place, "")) from error


def _check_directory(path: Path) -> None:
    """Check the size of the directory before zipfile reads all of it; ValueError if it is larger than any bundle's."""
    with path.open("rb") as stream:
        stream.seek(max(path.stat().st_size - 42, 0))
        locator, end = stream.read(20), stream.read()  # 22 bytes, as a bundle has no comment, and no ZIP64 locator
    length = int.from_bytes(end[12:16], "little")
    if not end.startswith(b"PK\5\6") or locator.startswith(b"PK\6\7") or length > _MAX_DIRECTORY:
        raise ValueError("its end is not that of a bundle")


def _unpack(archive: zipfile.ZipFile, place: Path) -> None:
    """Write the members to a directory; ValueError if one should not be there, or is damaged, and if none has results.

    zipfile compares each with its CRC, and SHA256SUMS must list all of them.
    """
    left, sums = MAX_BYTES, list[str]()
    for member in archive.infolist():
        name, kind = member.orig_filename, stat.S_IFMT(member.external_attr >> 16)
        is_plain = kind in (0, stat.S_IFREG) and member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        if not _NAME.fullmatch(name) or not is_plain:
            raise ValueError(f"{name!r:.100} should not be in it")
        (place / name).parent.mkdir(exist_ok=True)
        found = sha256()
        with archive.open(member) as stream, (place / name).open("xb") as out:
            while chunk := stream.read(min(1 << 20, left + 1)):
                left -= len(chunk)
                if left < 0:
                    raise ValueError(f"it holds more than {MAX_BYTES} bytes")
                found.update(chunk)
                out.write(chunk)
        sums += [f"{found.hexdigest()}  {name}"] * (name != _SUMS)
    if not any(place.glob("*/*.json")):
        raise ValueError("none of its folders has results")
    listed = place / _SUMS
    is_listed = listed.is_file() and listed.stat().st_size < _MAX_DIRECTORY
    if not is_listed or sorted(listed.read_text(encoding="utf-8").splitlines()) != sorted(sums):
        raise ValueError(f"{_SUMS} is missing, or its sums are not those of the files")
