"""Cures of command lines: the line to type instead of one that cannot be read. Loaded when there is a mistake.

A line is mended one mistake after the other until the parser takes it, so what is shown can be typed. Other words
of the field for commands and options are in `other_words`; words of settings are those of the language.
"""

from __future__ import annotations

import difflib
import re
import shlex
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, Final

from dliosim.commands.command_line.command_table import COMMANDS, EXAMPLES
from dliosim.commands.command_line.other_words import (
    BEFORE_COMMANDS,
    CHOICES,
    KINDS,
    LAUNCHERS,
    LETTERS,
    NO_COMMANDS,
    OPTIONS,
    OTHER_COMMANDS,
    find_name,
)
from dliosim.commands.command_line.parser import Misuse, parse_words, quote_word, split_overrides
from dliosim.commands.command_line.pattern_files import holds_results, locate_pattern
from dliosim.dlio import ENDINGS
from dliosim.dlio.keys import find_key

_MOST_MENDS: Final = 10


@dataclass(frozen=True, slots=True)
class _Line:
    """A command line while it is mended."""

    words: tuple[str, ...]  #: words behind `dliosim`
    launcher: tuple[str, ...] = ()  #: words before it
    notes: tuple[str, ...] = ()  #: what to say before the line
    ends: tuple[str, ...] = ()  #: what to say behind it

    def replace(self, old: Sequence[str], new: Sequence[str]) -> _Line:
        """Return the line with words in place of others that follow each other; at its end where there are none."""
        size, words = len(old), self.words
        at = next((at for at in range(len(words)) if size and words[at : at + size] == tuple(old)), len(words))
        return replace(self, words=(*words[:at], *new, *words[at + size :]))

    def note(self, text: str) -> _Line:
        """Return the line with one more note."""
        return replace(self, notes=(*self.notes, text))

    def __str__(self) -> str:
        return " ".join([*self.launcher, "dliosim", *map(quote_word, self.words)])


def describe_misuse(given: Sequence[str], message: str) -> str:
    """Return what is wrong with a command line, and what to type; `message` is what argparse says."""
    if cure := _cure_folder(given):
        return f"error: a workload of DLIO is given by its file\n  = help: write `{cure}`"
    others, overrides = split_overrides(given)
    line, problem = _Line(tuple(part for word in others for part in _split_option(word))), ""
    for _ in range(_MOST_MENDS):
        found, mended = _mend(line, message)
        problem = problem or found
        if isinstance(mended, str):
            return f"error: {problem}\n  = help: {mended}"
        if mended is None:
            break
        line, message = mended, _parse(mended.words)
        if not message:
            line = line.replace([], overrides)
            return f"error: {problem}\n  = help: {': '.join([*line.notes, f'write `{line}`'])}{''.join(line.ends)}"
    known = next((f" {word}" for word in given if word in COMMANDS), "")
    return f"error: {problem}\n  = help: `dliosim{known} --help` lists what can be written"


def _cure_folder(given: Sequence[str]) -> str:
    """Return the line for one with Hydra's `--config-dir DIR workload=NAME`, or an empty text."""
    words = [part for word in given for part in (word.split("=", 1) if word.startswith("--config-dir=") else [word])]
    named = next((word for word in words if word.startswith("workload=")), "")
    if "--config-dir" not in words[:-1] or not named:
        return ""
    at = words.index("--config-dir")
    file = f"{words[at + 1]}/workload/{named.removeprefix('workload=')}.yaml"
    return str(_Line((*words[:at], *words[at + 2 :])).replace([named], [file]))


def _split_option(word: str) -> Sequence[str]:
    return found.groups() if (found := re.fullmatch(r"((?:--|[+]+)[A-Za-z][\w.-]*)=(.*)", word, re.DOTALL)) else (word,)


def _parse(words: Sequence[str]) -> str:
    """Return what is wrong with the words behind `dliosim`, or an empty text."""
    if words[0] in ("--help", "--version") or "--help" in words:
        return ""
    try:
        parsed = parse_words(words)
        return str(parsed.command.find_contradiction(parsed))
    except Misuse as error:
        return str(error)


def _mend(line: _Line, message: str) -> tuple[str, _Line | str | None]:
    """Return the first mistake of a line, and the line without it, or what to do; None where that is not known."""
    words = line.words
    name = words[0] if words else ""
    if name not in COMMANDS:
        return _mend_command(line)
    known = {one: arguments for names, arguments in COMMANDS[name].options for one in names}
    if option := _find_unknown(words, known):
        return f"`dliosim {name}` has no option `{option}`", _mend_option(line, name, option, known)
    if found := re.match(r"the following arguments are required: (.*)", message):
        return _add_required(line, name, found[1].split(", "))
    if found := re.match(r"unrecognized arguments: (.*)", message):
        return _mend_extra(line, name, found[1].split(" "), known)
    if found := re.match(r"argument (?:COMMAND|([\w|-]+)): (.*)", message):
        return _mend_value(line, name, found[1], found[2], known)
    options = re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", message)
    if len(options) < 2:
        return message, None
    if options[1] in words:
        return message, line.replace([options[1]], [])  # two that contradict
    return message, line.replace([], _example_of(options[1], known))


def _mend_command(line: _Line) -> tuple[str, _Line | str | None]:
    """Mend a line that begins with no command."""
    words = line.words
    if not words:
        return "no command", _Line(("run", "cosmoflow"), ends=("; `dliosim --help` lists the commands",))
    word, rest = words[0], words[1:]
    if word in ("--help", "--version", "-h"):
        return "", line
    if word in LAUNCHERS:
        start = next((at for at, one in enumerate(words) if one in COMMANDS or locate_pattern(one)), len(words))
        ranks = tuple(one for one in words[:start] if one != "dliosim")
        ranks = ranks if len(ranks) > 1 and start < len(words) else (word, "-n", "4")
        behind = words[start:] or ("run", "cosmoflow")
        return f"`{word}` stands in front of dliosim", replace(line, words=behind, launcher=ranks)
    option = word.startswith("-")
    problem = f"no option `{word}`" if option else f"`{word}` is no command"
    command = next((one for one in rest if one in COMMANDS), "")
    if command and (option or locate_pattern(word)):
        at = words.index(command)
        return problem, line.replace(words[: at + 1], [command, word, *words[1:at]])
    plain = word.lstrip("-")
    if action := find_name(plain, NO_COMMANDS):
        return problem, action
    near = plain if plain in COMMANDS else find_name(plain, OTHER_COMMANDS)
    if word in BEFORE_COMMANDS and rest and (rest[0] in COMMANDS or find_name(rest[0], OTHER_COMMANDS)):
        return problem, replace(line, words=rest)
    if near == "--help":
        return problem, _Line((rest[0], "--help") if rest and rest[0] in COMMANDS else ("--help",))
    if not near and (re.search(r"\.\w+$|/", word) or locate_pattern(word)):
        return problem, replace(line, words=("run", *words))
    if not near and not option:
        near = next(iter(difflib.get_close_matches(plain, COMMANDS, n=1, cutoff=0.6)), "")
    if not near:
        return problem, f"commands: {', '.join(COMMANDS)}; `dliosim --help` says what they do"
    return problem, replace(line, words=(near, *([] if near.startswith("--") or near == "patterns" else rest)))


def _find_unknown(words: Sequence[str], known: dict[str, dict[str, Any]]) -> str:
    """Return the first option that a command does not have, or an empty text."""
    for before, word in pairwise(split_overrides(words)[0]):
        takes_value = before in known and known[before].get("action") != "store_true"
        option = not takes_value and re.match(r"[-+]+[A-Za-z?]", word) and not word.startswith("-D")
        if option and word not in known and word not in ("-h", "--help"):
            return word
    return ""


def _mend_option(line: _Line, name: str, option: str, known: dict[str, dict[str, Any]]) -> _Line | str | None:
    """Mend an option that the command `name` does not have."""
    from dliosim.language.setting_words import describe_setting

    words, plain = line.words, option.lstrip("-+")
    start = words.index(option)
    value = words[start + 1] if start + 1 < len(words) and not words[start + 1].startswith("-") else ""
    pair = "=" in value  # what `-D` takes
    words_of = {one: OPTIONS[one] for one in OPTIONS if (one in known or one == "--help") and (one != "-D" or pair)}
    written = f"--{plain.lower().replace('_', '-')}"
    same = written if written in known else find_name(plain, words_of)
    kind = "" if same == written else find_name(plain, KINDS)
    takes_value = kind != "needless" and known.get(same, {}).get("action") != "store_true"
    patterns = [word for word in words[1:] if locate_pattern(word)]
    if patterns == [value] or (not takes_value and Path(value).exists()):  # an argument, and the option has no value
        value = ""
    old = words[start : start + 1 + bool(value)]

    def write(*new: str) -> _Line:
        return line.replace(old, new)

    if kind == "needless":
        return write()
    if kind:
        return _mend_ranks(line, kind, option, value, old, "--ranks" in known)
    if same == "-D":
        return _define(write(), value)
    if same:
        return write(*([same] if same.startswith("-") else []), *([value] if value and takes_value else []))
    if name == "patterns":
        return write()
    if known.get(f"--{value}", {}).get("action") == "store_true":  # `--format json`
        return write(f"--{value}")
    if "--vary" in known and "," in value:
        return write("--vary", f"{plain.replace('-', '_')}={value}")
    near = difflib.get_close_matches(option, known, n=1, cutoff=0.75)
    if near and not describe_setting(plain):
        return write(near[0], *([value] if value else []))
    if found := _mend_by_language(write, plain, value):
        return found
    if setting := _write_setting(LETTERS.get(plain, plain), value, words):
        # Two of DLIO's keys may be one setting: a size and its spread.
        names = [pair.partition("=")[0] for before, pair in pairwise(words) if before == "-D"]
        return write() if setting[1].partition("=")[0] in names else write().replace([], setting)
    return _mend_by_command(write, name, option, value)


def _mend_by_command(write: Callable[..., _Line], name: str, option: str, value: str) -> _Line | str | None:
    """Mend an option that is one of another command, or a command."""
    homes = [home for home, other in COMMANDS.items() if any(option in names for names, _ in other.options)]
    homes = [] if name == "report" else homes
    if homes[:1] == ["report"]:
        return _Line(("report", "RESULTS", option, *filter(None, [value])), ends=(", which has that option",))
    if homes:
        return f"`dliosim {homes[0]}` has that option: `dliosim {homes[0]} --help`"
    other = find_name(option.lstrip("-"), OTHER_COMMANDS)
    return replace(write(), words=(other or name, *write().words[1:])) if other else None


def _mend_by_language(write: Callable[..., _Line], plain: str, value: str) -> _Line | None:
    """Mend an option that is a statement of the language, or a word that says nothing."""
    from dliosim.language.source import SourceText
    from dliosim.language.syntax.line_cures import cure_head
    from dliosim.language.syntax.other_words import find_action, find_statement
    from dliosim.language.syntax.vocabulary import VERBS

    word = plain.replace("-", "_")
    statement = find_statement(word) or word.replace("_", " ")
    if not find_action(word) and not statement.startswith("expect") and statement not in VERBS:
        return None
    text = f"{word} {value}"
    cure = cure_head(SourceText("", text).span(0, len(text)), "")
    if cure.startswith("leave the line out: ") and ("no effect on storage" in cure or "accelerator" in cure):
        return write().note(cure.replace("the line out: ", "the option out, "))
    found = re.fullmatch(r"write (`[^`]*`)", cure)
    return replace(write(), ends=(f", and {found[1]} in the pattern",)) if found else None


def _mend_ranks(line: _Line, kind: str, option: str, value: str, old: Sequence[str], counts: bool) -> _Line:
    """Mend an option that is one of launchers; `counts`: the command has --ranks and --nodes."""
    number = value if value.isdecimal() and int(value) else "4"
    rest = line.replace(old, [])
    if not counts:
        note = "the launcher starts the ranks"
        new: tuple[str, ...] = ("mpiexec", "-n", number)
        if kind == "of a node":
            new = ("mpiexec", "-n", number, "-ppn", number)
        elif kind == "nodes":
            new = ("srun", "-N", number, "-n", str(4 * int(number)))
        elif kind == "hosts":
            new = ("mpiexec", "-n", "4", "-f" if "file" in option else "-hosts", value or "HOSTS")
        elif kind == "srun":
            new, note = ("srun", option, *([value] if value else [])), "the launcher has that option"
        more = new[-2:] if rest.launcher[:1] == new[:1] else new
        return replace(rest if note in rest.notes else rest.note(note), launcher=(*rest.launcher, *more))
    if kind == "ranks":
        return line.replace(old, ["--ranks", number])
    if kind in ("hosts", "srun"):
        return rest
    given = next((after for before, after in pairwise(line.words) if before == "--ranks"), "4")
    ranks = int(given) if given.isdecimal() else 4
    nodes = int(number) if kind == "nodes" else max(1, -(-ranks // int(number)))
    return line.replace(old, ["--nodes", str(nodes)])


def _define(line: _Line, pair: str) -> _Line:
    """Return the line with a `-D` for `NAME=VALUE`."""
    name, _, value = pair.partition("=")
    return line.replace([], _write_setting(name, value, line.words) or ["-D", pair])


def _write_setting(word: str, value: str, words: Sequence[str]) -> list[str]:
    """Return the `-D` for a setting of the pattern that a word means; empty where it means none."""
    from dliosim.language.setting_words import find_override

    path = next((found for one in words[1:] if not one.startswith("-") and (found := locate_pattern(one))), None)
    if path is None:
        return []
    if path.suffix in ENDINGS and (key := find_key(word)):
        return [f"++{key}={value}"]
    off = word.startswith(("no-", "without-")) and not value
    name = re.sub(r"^(no|without)-", "", word) if off else word
    return shlex.split(find_override(path, name.replace("-", "_"), "off" if off else value))


def _add_required(line: _Line, name: str, missing: Sequence[str]) -> tuple[str, _Line | None]:
    """Add examples of what a line lacks."""
    ends: tuple[str, ...] = ()
    problem = f"`dliosim {name}` needs {missing[0]}"
    for one in missing:
        if one == "PATTERN":
            problem = f"`dliosim {name}` needs a pattern, a file or a name"
            ends = ("; `dliosim patterns` lists all that come with dliosim",)
        varied = next((pair for pair in pairwise(line.words) if pair[0] == "-D" and "," in pair[1]), None)
        number = next((w for before, w in pairwise(line.words) if w.isdecimal() and not before.startswith("-")), "")
        others = [word for word in line.words[1:] if not word.startswith("-")]
        if one == "--vary" and others and all(map(holds_results, others)):
            return "results are compared by `dliosim report`", replace(line, words=("report", *line.words[1:]))
        if one == "--vary" and len(list(filter(locate_pattern, others))) > 1:
            ends = ("; it runs one pattern in several ways: to compare two, run each, and report both results",)
        if one == "--vary" and varied:
            line = line.replace(varied, [one, varied[1]])
        elif one == "--ranks" and number:
            line = line.replace([number], [one, number])
        else:
            line = line.replace([], _example_of(one, {}))
    return problem, replace(line, ends=(*line.ends, *ends))


def _example_of(option: str, known: dict[str, dict[str, Any]]) -> list[str]:
    """Return the words of an example of an option or argument."""
    if known.get(option, {}).get("action") == "store_true":
        return [option]
    return [*([option] if option.startswith("-") else []), EXAMPLES.get(option, option)]


def _mend_extra(
    line: _Line, name: str, extra: Sequence[str], known: dict[str, dict[str, Any]]
) -> tuple[str, _Line | None]:
    """Mend a word that no option and no argument takes."""
    words = line.words
    at = next((at for at in range(1, len(words)) if words[at] in extra), 0)
    word, before = words[at], words[max(at - 2, 0) : at]
    problem = f"`dliosim {name}` does not take `{word}` here"
    if before[:1] in (("-D",), ("--vary",)):
        joint = _find_joint(before[0], before[1], word)
        return problem, line.replace([*before, word], [before[0], f"{before[1]}{joint}{word}"])
    if word.startswith("workload=") and any(one.endswith(ENDINGS) for one in words):
        return problem, line.replace([word], [])  # Hydra's choice of a file, and there is one
    if "=" in word and "-D" in known:
        return problem, _define(line.replace([word], []), word)
    if word.isdecimal():
        return problem, _mend_ranks(line, "ranks", "", word, [word], "--ranks" in known)
    if before[-1:] == ("--csv",):
        return problem, replace(line.replace([word], []), ends=(f", and add `> {word}`, which writes a file",))
    if name == "patterns":
        problem, following = "`dliosim patterns` takes no pattern", ["explain" if locate_pattern(word) else "patterns"]
        return problem, replace(line, words=(*following, *([word] if locate_pattern(word) else [])))
    if "--from" in words:
        paths = tuple(takewhile(lambda each: Path(each).exists(), words[words.index("--from") + 1 :]))
        if len(paths) > 1:
            problem = f"`--from` takes one file or one folder, not {len(paths)} files (a shell writes `*` out)"
            return problem, line.replace(paths, [str(Path(paths[0]).parent)])
    if locate_pattern(word):
        problem = f"`dliosim {name}` takes one pattern"
    return problem, line.replace([word], [])


def _find_joint(option: str, pair: str, word: str) -> str:
    """Return what belongs between NAME=VALUE and the word behind it, which a shell has taken from it."""
    if "=" not in pair:
        return "" if word.startswith("=") else "="
    if pair[-1] in "=," or word.startswith(","):
        return ""
    # A comma on either side parts the values already; a number is no second word of a phrase.
    is_phrase = "," in pair + word or option == "-D"
    return " " if is_phrase and not word.isdecimal() else ","


def _mend_value(
    line: _Line, name: str, option: str, reason: str, known: dict[str, dict[str, Any]]
) -> tuple[str, _Line | None]:
    """Mend the value of an option or argument."""
    from dliosim.language.syntax.rewrites import rewrite

    example = _example_of(option, known)
    if "expected" in reason:
        return f"`{option}` of `dliosim {name}` needs a value", line.replace([option], example)
    arguments = next(one for names, one in COMMANDS[name].options if option in names or one.get("metavar") == option)
    choices, convert = arguments.get("choices", ()), arguments.get("type", str)

    def accepts(text: str) -> bool:
        try:
            return bool(convert(text)) and (not choices or text in choices)
        except (ArgumentTypeError, ValueError):
            return False

    quoted = re.search(r"invalid choice: '(.*?)' ", reason)
    value = quoted[1] if quoted else line.words[line.words.index(option) + 1]
    problem = f"`{value}` is none of {', '.join(choices)}" if choices else f"`{option} {value}`: {reason}"
    if len(choices) == 1 and value == line.words[-1] and line.words[-2] == name and not option.startswith("-"):
        return f"`dliosim {name}` needs `{option}`", line.replace([value], [choices[0], value])
    same = find_name(value, CHOICES)
    forms = choices or example[-1].split(", ")
    found = same if same and accepts(same) else (rewrite(value, accepts, forms) or example[-1:])[0].replace("_", "")
    before = [option] if option in line.words else []
    return problem, line.replace([*before, value], [*before, found])
