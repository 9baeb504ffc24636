"""Declare one more setting of `model` before the language is loaded, and print what the language makes of it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import dliosim.model
from dliosim.model.phrase import Phrase

ROOT = Path(__file__).parent.parent.parent
PATTERN = """dlio 1
workload w
model m transformer {
    layers      2
    hidden      8
    ffn         8
    heads       2
    vocabulary  10
    LINE
}
checkpoint c {
    model m
    path "c"
}
save c
"""


@dataclass(frozen=True, slots=True)
class Transformer(dliosim.model.Transformer):
    """A model with experts."""

    experts: Annotated[int | None, Phrase("off | COUNT<=64 expert(s)")] = None  #: experts of each layer


def main() -> None:
    """Print, for each line, the value of the field and the line that `explain` writes, or the messages."""
    dliosim.model.Transformer = Transformer  # type: ignore[misc]
    from dliosim.language.compile import compile_pattern
    from dliosim.language.diagnostics import PatternError, render
    from dliosim.language.unparse import explain_pattern
    from dliosim.model import Job

    sys.path.insert(0, str(ROOT / "scripts" / "dev"))
    import write_settings

    found: dict[str, object] = {}
    path = Path(sys.argv[1]) / "pattern.dlio"
    for line in (
        "",
        "experts 1 expert",
        "experts 8 experts",
        "experts off",
        "experts 65 experts",
        "experts 8",
        "expert 8",
    ):
        path.write_text(PATTERN.replace("LINE", line), encoding="utf-8")
        try:
            model = compile_pattern(path, [], Job(2))[0].checkpoints[0].model
            assert isinstance(model, Transformer)
            written = [text for text in explain_pattern(path, [], Job(2)).splitlines() if "expert" in text]
            found[line] = [model.experts, *written]
        except PatternError as error:
            found[line] = render(error.diagnostics, colour=False)
    found["table"] = write_settings.write_table("model", "experts").splitlines()[-1]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
