"""Cures of command lines: the line to type instead of one that cannot be read. Loaded when there is a mistake."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from dliosim.commands.command_table import COMMANDS, Command
from dliosim.commands.patterns import locate_pattern

#: Other words for commands.
_COMMANDS: Final = {
    "run": "simulate, start, execute, exec, train, training, bench, benchmark, launch, prepare, generate, workload",
    "check": "validate, lint, parse, test, configview",
    "plan": "estimate, predict, datasize, forecast, size, dryrun, dry-run, plan-only, count",
    "report": "show, results, result, plot, view, html, png, page, csv-report, reportgen, summary, analyze",
    "explain": "help, info, describe, doc, docs, man, verbose, v, vv, debug",
    "compare": "diff, versus, vs, tune, sweep",
    "verify": "fsck, scrub, checksum",
}
#: Other words for options, of the commands that have them.
_OPTIONS: Final = {
    "--dir": "data-dir, data-folder, datadir, data, prefix, scratch, directory, dataset-path, data-path, path, C",
    "--output": "out, o, outdir, output-dir, results-dir, result-dir, results, log-dir, output-folder, save",
    "--null": "no-io, dummy, noop, without-io",
    "--seed": "random-seed, s",
    "--html": "page, output-html",
}
#: Options of launchers that say how many ranks there are, and how many of them a node has.
_RANKS: Final = (
    "n, np, ranks, nprocs, nproc, num-procs, ntasks, processes, num-processes, nranks, num-ranks, world-size, "
    "num-accelerators, num-client-hosts, nproc-per-node, num-gpus, gpus, numjobs, j"
)
_OF_NODE: Final = "ppn, npernode, ntasks-per-node, ranks-per-node, procs-per-node, tasks-per-node, map-by"
_NODES: Final = "nnodes, num-nodes, hosts, N"
#: Options of IOR and fio that are letters, by the words of settings.
_LETTERS: Final = {
    "t": "transfer",
    "a": "api",
    "b": "size",
    "s": "samples",
    "e": "epochs",
    "B": "odirect",
    "C": "shift",
}
_EXAMPLES: Final = {
    "--ranks": "--ranks 8",
    "--vary": "--vary api=posix,mpi-independent",
    "RESULTS": "dliosim-results-*",
}


def describe_misuse(given: Sequence[str], message: str) -> str:
    """Return what is wrong with a command line, and what to type; `message` is what argparse says."""
    name = given[0] if given else ""
    if name.startswith("-"):
        name = next((word for word in given if word in COMMANDS), "")
    if name not in COMMANDS:
        return _describe_command(given)
    found = next(_unknown_options(given[given.index(name) + 1 :], COMMANDS[name]), None)
    if found is not None:
        option, value, rest = found
        hint = _cure_option(name, option, value, rest) or f"`dliosim {name} --help` lists the options"
        return f"error: `dliosim {name}` has no option `{option}`\n  = help: {hint}"
    required = re.search(r"arguments are required: (\S+?),?(\s|$)", message)
    if required and required[1] == "PATTERN":
        hint = f"write `{_write_command(*given, 'cosmoflow')}`; `dliosim patterns` lists all that come with dliosim"
        return f"error: `dliosim {name}` needs a pattern, a file or a name\n  = help: {hint}"
    if required:
        example = _EXAMPLES.get(required[1], required[1])
        line = f"write `{_write_command(*given, *shlex.split(example))}`"
        return f"error: `dliosim {name}` needs {required[1]}\n  = help: {line}"
    return f"error: {message}\n  = help: `dliosim {name} --help` lists the options"


def _describe_command(given: Sequence[str]) -> str:
    known = f"commands: {', '.join(COMMANDS)}; `dliosim --help` says what they do"
    if not given or given[0].startswith("-"):
        option = f"no option `{given[0]}`" if given else "no command"
        return f"error: {option}\n  = help: {known}"
    word, rest = given[0], given[1:]
    if re.search(r"\.\w+$|/", word):
        return f"error: `{word}` is no command\n  = help: write `{_write_command('run', *given)}`"
    near = _look_up(word, _COMMANDS) or next(iter(difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.5)), "")
    hint = f"write `{_write_command(near, *rest)}`" if near else known
    return f"error: `{word}` is no command\n  = help: {hint}"


def _unknown_options(given: Sequence[str], command: Command) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each option that a command does not have, its value, and the other words."""
    known = {name: arguments for names, arguments in command.options for name in names if name.startswith("-")}
    position = 0
    while position < len(given):
        word = given[position]
        name, equals, value = word.partition("=")
        taken = 1
        if (name in known and not equals and "action" not in known[name]) or word == "-D":
            taken = 2
        elif (
            re.match(r"[-+]+[A-Za-z]", word) and name not in known and name not in ("-h", "--help") and word[:2] != "-D"
        ):
            if not equals and position + 1 < len(given) and not given[position + 1].startswith("-"):
                files = [one for one in given if locate_pattern(one)]
                if given[position + 1] not in files or len(files) > 1:
                    value, taken = given[position + 1], 2
            yield name, value, [*given[:position], *given[position + taken :]]
        position += taken


def _cure_option(name: str, option: str, value: str, rest: list[str]) -> str:
    command, word = COMMANDS[name], option.lstrip("-+")
    known = {one for names, _ in command.options for one in names if one.startswith("-")}
    if word in _RANKS.split(", ") or word in (_OF_NODE + ", " + _NODES).split(", "):
        return _cure_ranks(name, word, value, rest, known)
    if re.fullmatch(r"param|params|set|override|config|p", word) and "=" in value:
        word, value = value.split("=", 1)
    same = _look_up(word, _OPTIONS)
    if same in known:
        return f"write `{_write_command(name, *rest, same, *([value] if value else []))}`"
    if setting := _cure_setting(word, value, rest):
        return f"write `{_write_command(name, *rest)} {setting}`"
    homes = [home for home, other in COMMANDS.items() if any(option in names for names, _ in other.options)]
    if homes:
        subject = "RESULTS" if homes[0] == "report" else " ".join(rest)
        return (
            f"write `{_write_command(homes[0], subject, option, *([value] if value else []))}`, which has that option"
        )
    other = _look_up(word, _COMMANDS)
    if other:
        more = ["--ranks", "4"] if other == "plan" else []
        return f"write `{_write_command(other, *rest, *more)}`"
    near = difflib.get_close_matches(option, known, n=1, cutoff=0.7)
    return f"write `{_write_command(name, *rest, near[0], *([value] if value else []))}`" if near else ""


def _cure_ranks(name: str, word: str, value: str, rest: list[str], known: set[str]) -> str:
    """Return how the number of ranks, or of ranks of a node, is given: to the launcher, or by an option."""
    number = int(value) if value.isdecimal() and int(value) else 4
    if "--ranks" not in known:
        option = "-n" if word in _RANKS.split(", ") else "-ppn"
        return f"the launcher starts the ranks: write `mpiexec {option} {number} {_write_command(name, *rest)}`"
    if word in _RANKS.split(", "):
        return f"write `{_write_command(name, *rest, '--ranks', str(number))}`"
    given = next((after for before, after in pairwise(rest) if before == "--ranks"), "4")
    ranks = int(given) if given.isdecimal() else 4
    nodes = number if word in _NODES.split(", ") else max(1, -(-ranks // number))
    return f"write `{_write_command(name, *rest, '--nodes', str(nodes))}`"


def _cure_setting(word: str, value: str, rest: list[str]) -> str:
    """Return the `-D` for a setting of the pattern that an option means; empty where it means none."""
    from dliosim.language.setting_words import find_override

    path = next((found for one in rest if not one.startswith("-") and (found := locate_pattern(one))), None)
    if path is None:
        return ""
    return find_override(path, _LETTERS.get(word, word.replace("-", "_")), value)


def _look_up(word: str, table: dict[str, str]) -> str:
    return next((name for name, words in table.items() if word.lstrip("-").lower() in words.split(", ")), "")


def _write_command(*words: str) -> str:
    return " ".join(
        ["dliosim", *(word if re.fullmatch(r"[\w*.,/=:-]+", word) else shlex.quote(word) for word in words)]
    )
