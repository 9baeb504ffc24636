"""Count what CHANGES.md keeps count of: code lines and modules of dliosim/, words of README.md and docs/.

    scripts/dev/count_code.py

A code line has a token other than a comment and is in no docstring. Only files that git tracks count.
"""

from __future__ import annotations

import ast
import io
import subprocess
import tokenize
from pathlib import Path

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def count_code(source: str) -> int:
    """Return the number of code lines of a module."""
    coded = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            first = node.body[0]
            coded -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(coded)


def list_tracked(*patterns: str) -> list[Path]:
    """Return the files that git tracks."""
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], capture_output=True, text=True, check=True).stdout
    return [Path(name) for name in listed.split("\0") if name]


def main() -> None:
    """Print the counts."""
    modules = list_tracked("dliosim/*.py")
    lines = sum(count_code(path.read_text()) for path in modules)
    words = sum(len(path.read_text().split()) for path in list_tracked("README.md", "docs/*.md"))
    print(f"dliosim/: {lines} code lines in {len(modules)} modules; README.md and docs/: {words} words")


if __name__ == "__main__":
    main()
