"""Everything that pages name exists: the files and sections that they link, and the paths and commands that they show.

A path with a word in capitals (`tests/errors/CODE_name.dlio`) or an ellipsis is a placeholder; `NOT_OURS` has the other
names that look like ours and are not.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from dliosim.commands.command_line.command_table import COMMANDS
from dliosim.commands.command_line.parser import Misuse, parse_words
from tests.scripts.stubs import PAGES, ROOT

#: Files that the reader makes, and those of other projects.
NOT_OURS = {"mine.dlio", "my_pattern.dlio", ".hydra/", "examples/", "tests/data/dftracer-dlio.tar.gz"}

FOLDERS = tuple(f"{name}/" for name in ("dliosim", "docs", "patterns", "scripts", "tests", ".ci"))
#: Endings of names that no other program's files have here.
ENDINGS = (".py", ".sh", ".c", ".lark", ".sbatch", ".dlio", ".md", "/")

FENCE = re.compile(r"^( *)(```+).*\n((?:.*\n)*?)\1\2 *$", re.MULTILINE)
INDENTED = re.compile(r"(?<=\n\n)((?: {4}.*\n)+)")
SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
PLACEHOLDER = re.compile(r"(?<![A-Za-z])[A-Z]{3,}(?![a-z])|…|\.\.\.")


def without_blocks(page: Path) -> str:
    return INDENTED.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))


def spans(page: Path) -> list[str]:
    """The texts in backticks, each on one line."""
    return [" ".join(text.split()) for _, text in SPAN.findall(without_blocks(page))]


def blocks(page: Path) -> list[str]:
    """The blocks of code and of output."""
    text = page.read_text(encoding="utf-8")
    return [block for _, _, block in FENCE.findall(text)] + INDENTED.findall(FENCE.sub("", text))


@cache
def anchors(page: Path) -> set[str]:
    """The sections of a page, in the spelling of GitHub's links."""
    titles = re.findall(r"^#+ +(.*?) *$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    words = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles]
    slugs = [re.sub(r"[^\w -]", "", title).replace(" ", "-") for title in words]
    return {f"{slug}-{n}" if (n := slugs[:place].count(slug)) else slug for place, slug in enumerate(slugs)}


@cache
def tree() -> tuple[str, ...]:
    """The files and folders of this checkout; folders end with a slash."""
    paths = [*ROOT.glob("*.*"), *(path for name in FOLDERS for path in (ROOT / name, *(ROOT / name).rglob("*")))]
    return tuple(f"/{path.relative_to(ROOT)}{'/' * path.is_dir()}" for path in paths if "__pycache__" not in path.parts)


def links(page: Path) -> Iterator[str]:
    """Each relative link whose file or section does not exist."""
    for target in re.findall(r"\]\(([^()\s]+)\)", SPAN.sub("", without_blocks(page))):
        name, _, section = target.partition("#")
        file = page.parent / name if name else page
        if not re.match("[a-z]+:", target) and not (file.exists() and (not section or section in anchors(file))):
            yield target


def paths(page: Path) -> Iterator[str]:
    """Each path of this checkout that does not exist: as it is named, or below any folder (`store/manifest.py`)."""
    names = [name for name in spans(page) if re.fullmatch(r"[\w.*-]+(/[\w.*-]+)*/?", name)]
    names = [name for name in names if name.startswith(FOLDERS) or (name.endswith(ENDINGS) and name not in ENDINGS)]
    for block in blocks(page):
        names += re.findall(rf"(?<![\w./-])(?:{'|'.join(FOLDERS)})[\w./*-]*\w", block)
    for name in names:
        is_ours = not PLACEHOLDER.search(name) and name not in NOT_OURS
        if is_ours and not any(fnmatch(path.rstrip("/"), f"*/{name.rstrip('/')}") for path in tree()):
            yield name


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command of a text, from its program on; lines that a backslash continues are joined."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:  # a quotation mark of prose
            words = line.split()
        ends = [n for n, word in enumerate(words) if set(word) <= set("|&;<>()")]
        for start, end in zip([0, *(n + 1 for n in ends)], [*ends, len(words)], strict=True):
            yield words[start:end]


def is_option(name: str, word: str) -> bool:
    known = {option for options, _ in COMMANDS[name].options for option in options}
    return word.partition("=")[0] in known | {"-h", "--help", "--colour", "--color"}


def misuses(page: Path) -> Iterator[str]:
    """Each command of dliosim that its parser refuses, and each option that one of the scripts does not have.

    In the text a command may leave out its arguments.
    """
    for text, is_whole in [*((span, False) for span in spans(page)), *((block, True) for block in blocks(page))]:
        for words in commands(text):
            for n, word in enumerate(words):
                name, *rest = words[n + 1 :] or [""]
                options = [each for each in rest if each.startswith("-") and each != "-"]
                if Path(word).name == "dliosim" and re.fullmatch("[a-z]+", name):
                    if name not in COMMANDS or not all(is_option(name, option) for option in options):
                        yield shlex.join(words[n:])
                    elif is_whole and not {"-h", "--help"} & {*rest}:
                        try:
                            parse_words([name, *rest])
                        except Misuse as misuse:
                            yield f"{shlex.join(words[n:])}: {misuse}"
                elif re.match(r"scripts/[\w/]+\.py$", word) and (ROOT / word).exists():
                    script = (ROOT / word).read_text(encoding="utf-8")
                    options = [each.partition("=")[0] for each in words[n + 1 :] if each.startswith("-")]
                    yield from (f"{word} {option}" for option in options if f'"{option}"' not in script)


NO_FAULTS: dict[str, list[str]] = {"links": [], "paths": [], "commands": []}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    assert {"links": [*links(page)], "paths": [*paths(page)], "commands": [*misuses(page)]} == NO_FAULTS


def test_the_changes_link_pages_that_exist() -> None:
    assert list(links(ROOT / "CHANGES.md")) == []


def test_what_does_not_exist_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `title`, twice\n# A title, twice\n[a](#a-title-twice-1) [b](#a-title) [c](page.md) [d](none.md#a)\n"
        "`store/manifest.py` `manifests.py` `tests/errors/CODE_x.dlio` `tests/errors/*.txt` `tests/none/` `mine.dlio`\n"
        "`dliosim plan --json`, `dliosim plan --jsn`, `dliosim\npaln`, `python scripts/dev/bench_null.py --repeat 3`\n"
        "```sh\ncat patterns/none.dlio | env/bin/dliosim plan \\\n    cosmoflow --ranks 8   # all\n"
        "dliosim plan cosmoflow\n```\n\n    dliosim run cosmoflow fast\n"
    )
    assert list(links(page)) == ["#a-title", "none.md#a"]
    assert list(paths(page)) == ["manifests.py", "tests/none/", "patterns/none.dlio"]
    assert list(misuses(page)) == [
        "dliosim plan --jsn",
        "dliosim paln",
        "scripts/dev/bench_null.py --repeat",
        "dliosim plan cosmoflow: the following arguments are required: --ranks",
        "dliosim run cosmoflow fast: unrecognized arguments: fast",
    ]
