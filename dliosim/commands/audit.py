"""The command `dliosim audit`: whether results are fit to publish, their set-up as text, and a bundle of them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

from dliosim.audit.setup_text import describe_setup
from dliosim.audit.verdict import audit_json, audit_results, audit_text
from dliosim.commands.job.terminal import print_text
from dliosim.errors import ExpectationMissed
from dliosim.readable import count
from dliosim.report.reader.bundle import write_bundle
from dliosim.report.reader.load import load_results


def audit_command(parsed: SimpleNamespace) -> int:
    """Print what a reviewer would object to, or do what an option asks. Raises UsageError and ExecutionError."""
    results = load_results(parsed.results, with_arrays=False)
    if parsed.bundle is not None:
        write_bundle(Path(parsed.bundle), list(map(Path, parsed.results)))
        print_text(f"bundle: {parsed.bundle}\n")
    elif parsed.text:
        print_text(describe_setup(results))
    else:
        audits = audit_results(results)
        print_text("".join(map(audit_json, audits)) if parsed.json else audit_text(audits))
        if parsed.strict and (objections := sum(one.objections for one in audits)):
            sys.stderr.write(f"error: {count(objections, 'objection')}\n")
            return ExpectationMissed.exit_code
    return 0
