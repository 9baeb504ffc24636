"""Mistakes of newcomers, and their answers: tests/errors/newcomer.txt, which says how it is read.

`python -m tests.language.test_golden` writes its messages again.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from dliosim.cli import main
from dliosim.commands.command_line.parser import parse_words

FOLDER = Path(__file__).parent.parent / "errors"
FILE = FOLDER / "newcomer.txt"
EXAMPLE = (FOLDER / "newcomer" / "example.dlio").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Newcomer:
    """One mistake of a newcomer and its answer."""

    title: str
    written: list[str]  #: what the user writes
    answer: str

    @property
    def pattern(self) -> str:
        """The text of the user's pattern."""
        return write_pattern(EXAMPLE, self.written)

    @property
    def command(self) -> list[str]:
        """The user's command."""
        given = [line[2:] for line in self.written if line.startswith("$ ")]
        overrides = [word for line in self.written if line.startswith("-D ") for word in line.split(" ", 1)]
        return shlex.split(given[0])[1:] if given else ["check", "example.dlio", *overrides]


def write_pattern(text: str, edits: list[str]) -> str:
    lines, place = text.splitlines(), 0
    for edit in edits:
        sign, rest = edit[:1], edit[2:]
        if sign == "@":
            if rest == "file":
                lines, place = [], 0
            elif rest == "end":
                place = len(lines)
            else:
                head = next(number for number, line in enumerate(lines) if line.startswith(rest))
                place = next(number for number in range(head, len(lines)) if lines[number] == "}")
        elif sign == "-" and not edit.startswith("-D"):
            place = next(number for number, line in enumerate(lines) if line.strip() == rest)
            del lines[place]
        elif sign == "+":
            lines.insert(place, rest)
            place += 1
    return "\n".join([*lines, ""])


def read_cases() -> list[Newcomer]:
    cases = []
    for part in re.split(r"^## ", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        asked, _, answer = part.strip("\n").partition("\n\n")
        title, *written = asked.split("\n")
        cases.append(Newcomer(title, written, answer))
    return cases


CASES = read_cases()


def answer(pattern: str, command: list[str], folder: Path) -> tuple[int, str]:
    """Return the exit status of a command next to a pattern, and what it says."""
    (folder / "example.dlio").write_text(pattern, encoding="utf-8")
    said = io.StringIO()
    before = Path.cwd()
    os.chdir(folder)
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            status = main(command)
        except SystemExit as end:
            status = int(end.code or 0)
        finally:
            os.chdir(before)
    return status, said.getvalue().strip("\n")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_a_newcomer_is_answered_like_this(case: Newcomer, tmp_path: Path) -> None:
    status, said = answer(case.pattern, case.command, tmp_path)
    assert said == case.answer
    assert status == (0 if case.command[0] == "explain" and not said.startswith("error") else 2)


def list_cures(case: Newcomer) -> list[tuple[str, str]]:
    """Return what the answer says to type, each with the block in which it says so, or an empty text."""
    helps = re.findall(r"(?:= help|PHRASE): (.*)", case.answer)
    said = re.search(r"write `[^;]*", helps[0]) if helps and "a line each" not in helps[0] else None
    found = (
        re.search(r"(`[^`]*`(?:(?:, | or |, or give )`[^`]*`)*)(?: in the block `(\w+)`)?", said[0]) if said else None
    )
    return [(line, found[2] or "") for line in re.findall("`([^`]*)`", found[1])] if found else []


def type_line(case: Newcomer, line: str, block: str) -> str:
    """Return the user's pattern with a line of the answer in place of the line that the answer points at."""
    lines = case.pattern.splitlines()
    number = int(re.search(r"--> example\.dlio:(\d+)", case.answer)[1]) - 1
    if lines[number] == "{":
        del lines[number]
        number -= 1
    if block:
        del lines[number]
        replaced = re.search("in place of `([^`]*)`", case.answer)
        lines = [text for text in lines if not replaced or text.split() != replaced[1].split()]
        return write_pattern("\n".join(lines), [f"@ {block}", f"+ {line}"])
    lines[number] = line
    first = max((row for row in range(number) if lines[row].endswith("{")), default=0)
    last = next((row for row in range(number, len(lines)) if lines[row] == "}"), len(lines))
    same = [row for row in range(first, last) if row != number and lines[row].split()[:1] == line.split()[:1]]
    return (
        "\n".join([text for row, text in enumerate(lines) if row not in same or not lines[first].endswith("{")]) + "\n"
    )


TYPED = [(case, *cure) for case in CASES for cure in list_cures(case)]


@pytest.mark.parametrize(("case", "line", "block"), TYPED, ids=[f"{case.title}: {line}" for case, line, _ in TYPED])
def test_the_line_of_the_answer_is_right(case: Newcomer, line: str, block: str, tmp_path: Path) -> None:
    if line.startswith(("dliosim ", "mpiexec ", "mpirun ", "srun ")):
        words = shlex.split(line)
        parsed = parse_words(words[words.index("dliosim") + 1 :])
        overrides = [word for one in getattr(parsed, "define", []) for word in ("-D", one)]
        pattern, command = case.pattern, ["check", "example.dlio", *overrides]
    elif line.startswith("--vary "):
        name, values = line.removeprefix("--vary ").strip('"').split("=")
        for value in values.split(","):
            status, said = answer(case.pattern, ["check", "example.dlio", "-D", f"train.{name}={value}"], tmp_path)
            assert status == 0 or "error[E2" in said
        return
    elif line.startswith("-D "):
        pattern, command = case.pattern, ["check", "example.dlio", *shlex.split(line)]
    else:
        pattern, command = type_line(case, line, block), ["check", "example.dlio"]
    status, said = answer(pattern, command, tmp_path)
    # What is typed may not go together with other lines of the example; a message says so then.
    later = set(re.findall(r"^error\[(E\d)", said, re.MULTILINE)) == {"E2"} and "error[E2" not in case.answer
    assert status == 0 or later, f"{pattern}\n{said}"


def test_most_answers_have_a_line_that_can_be_typed() -> None:
    assert len({case.title for case, _, _ in TYPED}) >= 40


def write_answers(folder: Path) -> None:
    """Write the file again with the answers of today."""
    head = FILE.read_text(encoding="utf-8").partition("\n## ")[0]
    parts = [
        "\n".join([f"## {case.title}", *case.written, "", answer(case.pattern, case.command, folder)[1]])
        for case in CASES
    ]
    FILE.write_text("\n\n".join([head.rstrip("\n"), *parts, ""]).rstrip("\n") + "\n", encoding="utf-8")
