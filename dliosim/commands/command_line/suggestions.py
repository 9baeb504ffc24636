"""Suggestions for command lines: the line to type instead of one that cannot be read.

Each part of a line is mended once, from left to right; a line that is shown to be typed has been parsed. Words of
settings are those of the language.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, Final

from dliosim.commands.command_line.command_table import COMMANDS, EXAMPLES
from dliosim.commands.command_line.parser import Misuse, parse_words, quote_word, split_overrides
from dliosim.commands.command_line.pattern_files import locate_pattern
from dliosim.dlio import ENDINGS
from dliosim.dlio.known_keys import find_key
from dliosim.language.setting_words import describe_setting, find_override
from dliosim.language.suggest.synonyms import find_entry

#: Other words for commands.
_COMMANDS: Final = {
    "run": "simulate, start, execute, train, training, benchmark, launch, generate, datagen",
    "check": "validate, lint, test, configview", "plan": "estimate, datasize",
    "report": "results, plot, html, reportgen, summary", "explain": "info, describe, show",
    "analyze": "analyse, diagnose, darshan, drishti, dfanalyzer", "compare": "diff, versus, sweep",
    "patterns": "list, ls, examples, workloads",
}  # fmt: skip
#: Other words for options and arguments, of the commands that have them.
_OPTIONS: Final = {
    "-D": "define, param, params, set, override, p, d, D, o", "--json": "output-format, format", "--from": "template",
    "--dir": "data-dir, data-folder, data, path, checkpoint-folder, checkpoint-dir", "--null": "no-io, dummy",
    "--output": "out, output-dir, results-dir, results", "PATTERN": "pattern, workload, model, file, f",
    "needless": "verbose, v, quiet, q, force, accelerator-type, client-host-memory-in-gb, allow-run-as-root",
    "launcher": "n, np, ranks, nprocs, nproc, ntasks, processes, nranks, num-ranks, num-accelerators, num-gpus, gpus",
    "others of a launcher": "ppn, npernode, ntasks-per-node, hosts, host, hostfile, nodes, nnodes, N, partition",
}  # fmt: skip
_FOLDERS: Final = "data go below `--dir DIR`, results into `--output DIR`, and `-D NAME=VALUE` gives a value"
#: Options of IOR that are letters, by the words of settings. Its -b and -s have no setting: they give bytes of a rank.
_LETTERS: Final = {"t": "transfer", "a": "api", "i": "epochs", "F": "file_per_process"}


@dataclass(slots=True)
class _Line:
    """A command line while it is mended."""

    words: list[str]  #: words behind `dliosim`
    problem: str = ""  #: what is wrong, and is mended first; empty for what argparse says
    launcher: list[str] = field(default_factory=list)  #: words before `dliosim`
    note: str = ""  #: what to say before the line
    advice: str = ""  #: what to do if no line says it

    def replace(self, problem: str, at: int, size: int, new: Sequence[str]) -> None:
        """Put other words in the place of `size` words."""
        self.problem, self.words[at : at + size] = self.problem or problem, new

    def give_up(self, problem: str, advice: str = "") -> None:
        """Note the advice, if no line can be shown."""
        self.problem, self.advice = problem, advice or f"`dliosim {self.words[0]} --help` lists what can be written"


def describe_misuse(given: Sequence[str], message: str) -> str:
    """Return what is wrong with a command line, and what to type; `message` is what argparse says."""
    others, overrides = split_overrides(given)
    line = _Line([part for word in others for part in _split_option(word)])
    _mend_command(line)
    if not {"-h", "--help"} & {*line.words}:  # parsing would print the help
        for mender in (_mend_options, _add_missing, _mend_extra, _mend_value):
            if not line.advice and (found := _parse(line.words)):
                mender(line, found)
        line.words += overrides
        if not line.advice and _parse(line.words):
            line.give_up(line.problem or message)
    typed = " ".join([*line.launcher, "dliosim", *map(quote_word, line.words)])
    return f"error: {line.problem or message}\n  = help: {line.advice or f'{line.note}write `{typed}`'}"


def _split_option(word: str) -> Sequence[str]:
    return found.groups() if (found := re.fullmatch(r"((?:--|[+]+)[A-Za-z][\w.-]*)=(.*)", word, re.DOTALL)) else (word,)


def _parse(words: Sequence[str]) -> str:
    """Return what is wrong with the words behind `dliosim`, or an empty text."""
    try:
        parse_words(words)
    except Misuse as error:
        return str(error)
    return ""


def _mend_command(line: _Line) -> None:
    """Mend a line that begins with no command."""
    words, first = line.words, line.words[0] if line.words else ""
    start = next((at for at, one in enumerate(words) if one in COMMANDS), 0)
    problem, plain = f"unknown command `{first}`", first.lstrip("-")
    if first in ("mpiexec", "mpirun", "srun"):
        start = start or next((at for at, one in enumerate(words) if locate_pattern(one)), len(words))
        line.launcher = [one for one in words[:start] if one != "dliosim"]
        line.replace(f"`{first}` stands in front of dliosim", 0, start, [] if words[start:] else ["run", "cosmoflow"])
        _mend_command(line)
    elif start and (start == 1 or locate_pattern(first)):
        line.replace(problem, 0, start + 1, [words[start], *(words[:start] if locate_pattern(first) else [])])
    elif first in COMMANDS:
        return
    elif known := plain if plain in COMMANDS else find_entry(plain, _COMMANDS):
        line.replace(problem, 0, 1, [known])
    elif first and (re.search(r"\.\w+$|/", first) or locate_pattern(first)):
        line.replace(problem, 0, 0, ["run"])
    elif near := difflib.get_close_matches(plain, COMMANDS, n=1, cutoff=0.6):
        line.replace(problem, 0, 1, near)
    else:
        listed = f"commands: {', '.join(COMMANDS)}; `dliosim --help` says what they do"
        line.give_up(problem if first else "no command", listed)


def _mend_options(line: _Line, _: str) -> None:
    """Mend the options that a command does not have."""
    known = {one: arguments for names, arguments in COMMANDS[line.words[0]].options for one in names}
    at = 1
    while at < len(line.words) and not line.advice:
        before, option = line.words[at - 1 : at + 1]
        is_value = before in known and known[before].get("action") != "store_true"
        is_option = re.match(r"[-+]+[A-Za-z?]", option) and not option.startswith("-D")
        at += 1
        if is_option and not is_value and option not in (*known, "-h", "--help"):
            at -= _mend_option(line, at - 1, known)


def _mend_option(line: _Line, at: int, known: Mapping[str, Mapping[str, Any]]) -> bool:
    """Mend the option at a place; return whether another word is there then that may be an option."""
    name, option = line.words[0], line.words[at]
    plain, value = option.lstrip("-+"), "".join(line.words[at + 1 : at + 2])
    value = "" if value.startswith("-") else value
    patterns = [word for word in line.words[1:] if locate_pattern(word)]
    problem, own = f"`dliosim {name}` has no option `{option}`", "" if patterns == [value] else value
    named = next((one for one, words in _OPTIONS.items() if plain in words.split(", ")), "")
    named = "--ranks" if named == "launcher" and "--ranks" in known else named
    same = f"--{plain.lower().replace('_', '-')}"
    if same in known or (named in known and named != "-D"):
        line.replace(problem, at, 1, [same if same in known else named])
    elif named == "-D" and "=" in value:
        line.replace(problem, at, 2, _define(value, line.words))
    elif named in ("PATTERN", "needless"):
        is_argument = locate_pattern(own) is not None or Path(own).exists()
        line.replace(problem, at, 1 + (named == "needless" and bool(own) and not is_argument), [])
        return True
    elif named == "launcher":
        line.replace(problem, at, 1 + value.isdecimal(), [])
        line.note = "the launcher starts the ranks: "
        line.launcher = ["mpiexec", "-n", value if value.isdecimal() else "4"]
        return True
    elif named == "others of a launcher":
        placed = "`--ranks N` says how many there are, `--per-node M` how many are on a node"
        nodes = "`--ranks N` and `--nodes M` say how many there are"
        launched = "the launcher has that option, in front of dliosim: `mpiexec -n 4 dliosim run FILE`"
        line.give_up(problem, placed if "--per-node" in known else nodes if "--nodes" in known else launched)
    elif (near := difflib.get_close_matches(option, known, n=1, cutoff=0.75)) and not describe_setting(plain):
        line.replace(problem, at, 1, near)
    elif "-D" in known and (found := _write_setting(_LETTERS.get(plain, plain), own, line.words)):
        names = [pair.partition("=")[0] for before, pair in pairwise(line.words) if before == "-D"]
        # Two of DLIO's keys may be one setting: a size and its spread.
        line.replace(problem, at, 1 + bool(own), [] if found[-1].partition("=")[0] in names else found)
        if named == "-D" or ".path=" in found[-1]:  # a folder, and nothing says of what
            line.give_up(problem, _FOLDERS)
    elif named == "-D":
        line.give_up(problem, _FOLDERS)
    elif plain in ("dry-run", "dryrun"):
        line.replace(problem, at, 1, [])
        line.words[0] = "plan"
        return True
    else:
        homes = (home for home, one in COMMANDS.items() if any(option in names for names, _ in one.options))
        if home := next(homes, ""):
            typed = f"dliosim {home}{' RESULTS' * (home == 'report')} {option} {own}".rstrip()
        line.give_up(problem, f"`{typed}` has that option: `dliosim {home} --help`" if home else "")
    return False


def _define(pair: str, words: Sequence[str]) -> list[str]:
    """Return the `-D` for `NAME=VALUE`, in the words of the pattern if it has others."""
    name, _, value = pair.partition("=")
    return _write_setting(name, value, words) or ["-D", pair]


def _write_setting(word: str, value: str, words: Sequence[str]) -> list[str]:
    """Return the `-D` for a setting of the pattern that a word means; empty if it means none."""
    path = next((found for one in words[1:] if not one.startswith("-") and (found := locate_pattern(one))), None)
    if path is not None and path.suffix in ENDINGS and (key := find_key(word)):
        return [f"++{key}={value}"]
    if words[0] == "compare" and "," in value:
        return ["--vary", f"{word.replace('-', '_')}={value}"]
    return shlex.split(find_override(path, word.replace("-", "_"), value)) if path else []


def _mend_extra(line: _Line, message: str) -> None:
    """Mend words that no option and no argument takes."""
    found = re.match(r"unrecognized arguments: (.*)", message)
    start = line.words.index("--from") + 1 if "--from" in line.words else len(line.words)
    paths = list(takewhile(lambda each: Path(each).exists(), line.words[start:]))
    if len(paths) > 1:
        problem = f"`--from` takes one file or one folder, not {len(paths)} files (a shell writes `*` out)"
        traces = [word for path in paths for word in ("--from", path)][1:]
        folders = all(Path(path).is_dir() for path in paths)
        line.replace(problem, start, len(paths), traces if folders else [str(Path(paths[0]).parent)])
        return
    for word in found[1].split(" ") if found else ():
        at = next((at for at in range(1, len(line.words)) if line.words[at] == word), 0)
        problem = f"`dliosim {line.words[0]}` does not take `{word}` here"
        option, pair = ["", "", *line.words[:at]][-2:]
        if option in ("-D", "--vary"):
            joint = "" if word.startswith("=") or pair.endswith(("=", ",")) else "=" if "=" not in pair else " "
            joint = "," if joint == " " and option == "--vary" and "," not in pair + word else joint
            line.replace(problem, at - 1, 2, [f"{pair}{joint}{word}"])
        elif word.startswith("workload="):
            line.replace(problem, at, 1, [])  # Hydra's choice of a file, and there is one
        elif "=" in word:
            line.replace(problem, at, 1, _define(word, line.words))
        elif word.isdecimal() and option == "--ranks":
            line.replace(problem, at - 1, 2, [f"{pair},{word}"])
        elif word.isdecimal():
            line.replace(problem, at, 1, ["--ranks", word])
            _mend_options(line, "")
        else:
            line.give_up(problem)


def _add_missing(line: _Line, message: str) -> None:
    """Add examples of what a line lacks."""
    found = re.match(r"the following arguments are required: (.*)", message)
    for one in found[1].split(", ") if found else ():
        problem = f"`dliosim {line.words[0]}` needs {'a pattern, a file or a name' if one == 'PATTERN' else one}"
        line.note = "`dliosim patterns` lists the patterns that come with dliosim: " if one == "PATTERN" else line.note
        varied = next((at for at, pair in enumerate(pairwise(line.words)) if pair[0] == "-D" and "," in pair[1]), 0)
        if one == "--vary" and varied:
            line.replace(problem, varied, 1, [one])
        else:
            example = EXAMPLES.get(one, one)
            own = _write_setting("readers", "2", line.words) if one == "--vary" else []
            if own and not _write_setting("api", "mpi-independent", line.words):  # as where reads are of several
                example = own[-1].replace("=2", "=0,2")
            line.replace(problem, len(line.words), 0, [*([one] if one[0] == "-" else []), example])


def _mend_value(line: _Line, message: str) -> None:
    """Say how the value of an option is written, or leave out an option that contradicts another one."""
    options = re.findall(r"(?<![\w-])--[a-z][\w-]*", message)
    if len(options) > 1 and options[1] in line.words:
        line.replace(message, line.words.index(options[1]), 1, [])
    if (found := re.match(r"argument (-[\w-]+): (.*)", message)) and found[1] in line.words:
        (option, reason), name = found.groups(), line.words[0]
        value = " ".join(line.words[line.words.index(option) :][:2])
        arguments = next(one for names, one in COMMANDS[name].options if option in names)
        forms = arguments.get("choices") or EXAMPLES.get(option, option).split(", ")
        problem = f"`{option}` of `dliosim {name}` needs a value" if "expected" in reason else f"`{value}`: {reason}"
        line.give_up(problem, f"it is written as {' or '.join(f'`{option} {quote_word(form)}`' for form in forms)}")
