"""The command `dliosim import`: a workload file of DLIO as a pattern, and what the pattern does not say."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

from dliosim import PATTERNS
from dliosim.commands.command_line.pattern_files import print_report
from dliosim.commands.job.terminal import print_text
from dliosim.dlio.config import find_workload_file
from dliosim.dlio.convert import import_pattern
from dliosim.errors import UsageError
from dliosim.language.syntax.foreign_files import describe_unreadable
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
        if hint := describe_unreadable(Path(parsed.file)):
            raise UsageError(f"{error.args[0]}\n  = help: {hint}") from error
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
