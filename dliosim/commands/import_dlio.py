"""The command `dliosim import`: a workload file of DLIO as a pattern, and what the pattern does not say."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

from dliosim import PATTERNS
from dliosim.commands.command_line.pattern_files import print_report
from dliosim.commands.job.terminal import print_text
from dliosim.dlio.config import find_workload_file
from dliosim.dlio.convert import import_pattern
from dliosim.errors import UsageError
from dliosim.readable import printable
from dliosim.report.files.results import write_new


def import_command(parsed: SimpleNamespace) -> int:
    """Write the pattern, or print it where there is no -o, and say on stderr what it does not have; return 0."""
    try:
        pattern = import_pattern(
            Path(parsed.file), parsed.override, parsed.dlio, as_run=parsed.as_run, from_files=parsed.from_files
        )
    except OSError as error:
        near = find_workload_file(parsed.file)
        cure = f"write `dliosim import {near or 'FOLDER/NAME.yaml'}`{'' if near else ', the path of the file'}"
        if (PATTERNS / f"{parsed.file}.dlio").exists():
            cure = f"`{parsed.file}` is a pattern already: write `dliosim plan {parsed.file} --ranks 4`"
        raise UsageError(f"cannot read {parsed.file}: {error.strerror}\n  = help: {cure}") from error
    except UsageError as error:
        if not _is_text(Path(parsed.file)):
            line = f"dliosim new mine --from {shlex.quote(parsed.file)}"
            raise UsageError(f"{error.args[0]}\n  = help: data are named in a pattern: `{line}` writes one") from error
        raise
    print_report(parsed.file, pattern)
    if parsed.output is None:
        if (unprinted := print_text(pattern.text)) is not None:
            raise unprinted
        return 0
    write_new(Path(parsed.output), pattern.text)
    place = f" --dir {printable(pattern.place)}" if pattern.place else ""
    written = printable(parsed.output)
    sys.stderr.write(f"wrote {written}; next: dliosim plan {written} --ranks 4{place}\n")
    return 0


def _is_text(path: Path) -> bool:
    """Return whether the first bytes of a file are text."""
    try:
        with path.open("rb") as file:
            file.read(1000).decode("ascii")
    except UnicodeDecodeError:
        return False
    except OSError:
        pass
    return True
