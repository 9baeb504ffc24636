"""Bundles of results: zip files from any source, unpacked into a directory of their own while they are read."""

from __future__ import annotations

import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from dliosim.errors import UsageError
from dliosim.report.files.results import COMPARE, PARTIAL, RANKS, RESULTS, ROWS, TIMELINE
from dliosim.report.reader.typed_json import check_file

#: Files of a folder that come from results, the one that says what they are first; others of a folder and of a bundle.
FILES: Final = (COMPARE, RESULTS, PARTIAL, ROWS, RANKS, TIMELINE)
PATTERN, ENVIRONMENT, README, SUMS = "pattern.dlio", "environment.txt", "README.txt", "SHA256SUMS"

#: The most folders, and the most bytes, of the file and of all that is in it.
MAX_FOLDERS, MAX_BYTES = 100, 2 << 30

_IN_FOLDERS: Final = "|".join(map(re.escape, (*FILES, PATTERN, ENVIRONMENT)))
_NAME: Final = re.compile(rf"{re.escape(README)}|{SUMS}|[0-9]{{3}}/(?:{_IN_FOLDERS})")
#: Bytes of the directory of a zip file, at most: of an entry for each file.
_MAX_DIRECTORY: Final = 200 * MAX_FOLDERS * (len(FILES) + 3)

# Errors of zipfile and zlib about damaged files; NotImplementedError is a RuntimeError.
_DAMAGE: Final = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OverflowError, OSError)


@contextmanager
def unpack_bundle(path: Path) -> Iterator[list[Path]]:
    """Yield the directories of results in a bundle, which are removed afterwards; UsageError if it is damaged."""
    check_file(path, MAX_BYTES)
    with TemporaryDirectory(prefix="dliosim-") as given:
        place = Path(given)
        try:
            _check_directory(path)
            with zipfile.ZipFile(path) as archive:
                _unpack(archive, place)
        except _DAMAGE as error:
            raise UsageError(f"{path} is no whole bundle of dliosim: {error}".replace(given, "")) from error
        yield sorted(one for one in place.iterdir() if one.is_dir())


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

    zipfile compares each with its CRC; the sums of a bundle are for its readers.
    """
    left = MAX_BYTES
    for member in archive.infolist():
        name, kind = member.orig_filename, stat.S_IFMT(member.external_attr >> 16)
        is_plain = kind in (0, stat.S_IFREG) and member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        if not _NAME.fullmatch(name) or not is_plain:
            raise ValueError(f"{name!r:.100} should not be in it")
        (place / name).parent.mkdir(exist_ok=True)
        with archive.open(member) as stream, (place / name).open("xb") as out:
            while chunk := stream.read(min(1 << 20, left + 1)):
                left -= len(chunk)
                if left < 0:
                    raise ValueError(f"it holds more than {MAX_BYTES} bytes")
                out.write(chunk)
    if not any(place.glob("*/*.json")):
        raise ValueError("none of its folders has results")
