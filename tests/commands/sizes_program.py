"""Runs `dliosim` on each line of standard input in a process of its own, within 30 s of processor and 4 GiB of memory.

A line is a JSON list: the arguments. Prints for each a JSON list: status (negative: the signal that ended it), peak
resident bytes, bytes of output, and the end of what it said on standard error. Output is
thrown away; who writes more than 2 MB is ended by a closed pipe, as `| head` would.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from collections.abc import Sequence

from dliosim.cli import main

LARGEST_OUTPUT = 2_000_000


def run(arguments: Sequence[str]) -> list[object]:
    """One command in a child."""
    output, into = os.pipe()
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            status = 99
            try:
                resource.setrlimit(resource.RLIMIT_CPU, (30, 31))
                resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
                os.close(output)
                os.dup2(into, 1)
                os.dup2(said.fileno(), 2)
                status = main(arguments)
                sys.stdout.flush()
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 98
            except BaseException as error:  # the traceback of an unexpected error
                os.write(2, repr(error).encode())
            finally:
                os._exit(status)
        os.close(into)
        written = 0
        while written < LARGEST_OUTPUT and (data := os.read(output, 1 << 16)):
            written += len(data)
        os.close(output)
        _, ended, usage = os.wait4(child, 0)
        said.seek(0)
        text = said.read()[-4000:].decode(errors="replace")
    return [os.waitstatus_to_exitcode(ended), usage.ru_maxrss * 1024, written, text]


for line in sys.stdin:
    print(json.dumps(run(json.loads(line))), flush=True)
