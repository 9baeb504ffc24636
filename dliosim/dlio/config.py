"""Workload files of DLIO (plain YAML, or as Hydra writes it after a run) with overrides, as values by dotted names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeAlias

from dliosim.dlio import ENDINGS
from dliosim.errors import HELP, UsageError, install_hint
from dliosim.readable import printable

#: A value of a file: a scalar, or a list.
Value: TypeAlias = "str | int | float | bool | list[Any] | dict[str, Any] | None"

#: Bytes of a file, and values in it: DLIO's own have at most 3 kB and 60.
_MOST_BYTES: Final = 1 << 18
_MOST_VALUES: Final = 10_000
_DEEPEST: Final = 8
#: Files that `defaults` may lead to.
_MOST_DEFAULTS: Final = 8
#: Characters of a value with `${…}`, before and after these are replaced.
_LONGEST: Final = 1024

#: Keys that are tables, and so values by themselves.
_TABLES: Final = frozenset(
    ("train.computation_time", "evaluation.eval_time", "reader.preprocess_time", "dataset.parquet.columns")
)
#: One of these sections makes a file a workload of DLIO.
_SECTIONS: Final = ("workflow.", "dataset.", "reader.", "data_reader.", "train.", "checkpoint.")
_NUMBER: Final = re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?")
_OVERRIDE: Final = re.compile(r"(\+\+|\+|~)?(?:workload\.)?([\w.]+)(?:=(.*))?", re.DOTALL)
_REFERENCE: Final = re.compile(r"\$\{(?:workload\.)?([\w.]+)\}")


@dataclass(slots=True)
class Config:
    """The values of a workload file by dotted names, and which of them were asked for."""

    #: name of the workload
    name: str
    #: values, as `dataset.num_files_train`
    values: dict[str, Value]
    #: names that were asked for
    asked: set[str] = field(default_factory=set)

    def value(self, *names: str, default: Value = None) -> Value:
        """Return the value of the first of these names that is given, else the default.

        Raises UsageError for a value that this file does not say: `${oc.env:HOME}`.
        """
        self.asked.update(names)
        given = next((name for name in names if self.values.get(name) is not None), None)
        found = default if given is None else self.values[given]
        if isinstance(found, str) and "${" in found:
            hint = f"say what it is: ++workload.{given}=VALUE"
            raise UsageError(f"{given}: {_show(found)}: Hydra alone knows what this stands for\n  = help: {hint}")
        return found

    def has(self, *names: str) -> bool:
        """Return True if any of these names is given."""
        self.asked.update(names)
        return any(self.values.get(name) is not None for name in names)

    def quote(self, *names: str) -> str:
        """Return those of these names that are given, for a comment: `reader.batch_size=7, reader.read_threads=4`."""
        found = [f"{name}={_show(self.values[name])}" for name in names if self.values.get(name) is not None]
        return ", ".join(found)

    def number(self, *names: str, default: float = 0.0) -> float:
        """Return a number; UsageError for another value."""
        found = self.value(*names, default=default)
        if isinstance(found, str) and _NUMBER.fullmatch(found):
            found = float(found.replace("_", ""))
        if isinstance(found, bool) or not isinstance(found, int | float) or abs(found) > 1e18 or found != found:
            raise self.mistake(names, "expected a number", 4)
        return float(found)

    def integer(self, *names: str, default: int = 0, least: int = 0) -> int:
        """Return a whole number of at least `least`; UsageError for another value."""
        found = self.number(*names, default=default)
        if found != int(found) or found < least:
            raise self.mistake(names, f"expected a whole number from {least} on", max(least, 4))
        return int(found)

    def flag(self, *names: str, default: bool = False) -> bool:
        """Return a truth value; UsageError for another value."""
        found = self.value(*names, default=default)
        if isinstance(found, str) and found.lower() in ("true", "yes", "on", "false", "no", "off"):
            found = found.lower() in ("true", "yes", "on")
        if not isinstance(found, bool):
            raise self.mistake(names, "expected True or False", True)
        return found

    def text(self, *names: str, default: str = "") -> str:
        """Return a word or a path; `off`, which YAML reads as False, is a word here."""
        found = self.value(*names, default=default)
        if isinstance(found, list | dict):
            raise UsageError(f"{names[0]}: {_show(found)}: expected a word")
        return {True: "on", False: "off"}.get(found, str(found)) if isinstance(found, bool) else str(found)

    def choice(self, name: str, known: Iterable[str], default: str) -> str:
        """Return one of the known words; UsageError for another, with the line that has the nearest of them."""
        found, words = self.text(name, default=default), tuple(known)
        if found in words:
            return found
        near = next(iter(get_close_matches(found.lower(), words, 1, 0.6)), words[0])
        raise self.mistake((name,), f"expected one of {', '.join(sorted(words))}", near)

    def mistake(self, names: tuple[str, ...], expected: str, example: Value) -> UsageError:
        """Return the error of a value, with the line of the file that would do."""
        name = next((name for name in names if self.values.get(name) is not None), names[0])
        section, _, key = name.rpartition(".")
        where = f" in `{section}:`" if section else ""
        line = f"write `{key}: {example}`{where}, or `++workload.{name}={example}` in the command"
        return UsageError(f"{name}: {_show(self.values.get(name))}: {expected}\n  = help: {line}")

    def integers(self, *names: str) -> list[int]:
        """Return a list of whole numbers; UsageError for another value."""
        found = self.value(*names, default=[])
        given = found if isinstance(found, list) else [found]
        numbers = [one for one in given if isinstance(one, int) and not isinstance(one, bool) and one >= 0]
        if len(numbers) < len(given):
            raise UsageError(f"{names[0]}: {_show(found)}: expected a list of whole numbers")
        return numbers


def find_workload_file(given: str) -> str:
    """Return the workload file of DLIO that a name without its ending means, or `workload=NAME`; empty for none."""
    name = given.removeprefix("workload=")
    near = (f"{name}{ending}" for ending in ("", *ENDINGS) if f"{name}{ending}".endswith(ENDINGS))
    try:
        return printable(next((each for each in near if Path(each).is_file()), ""))
    except OSError:
        return ""


def read_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a workload file with `++workload.a.b=c` overrides. Raises UsageError for any other file."""
    values = dict(_flatten(_read_tree(path, [])))
    for text in overrides:
        _override(values, text)
    resolved = _resolve_references(path, values)
    if not any(name.startswith(_SECTIONS) for name in resolved):
        sections = ", ".join(f"`{one[:-1]}:`" for one in _SECTIONS)
        raise UsageError(f"{path}: not a workload of DLIO: it has none of the sections {sections}")
    known = {name.replace("data_reader.", "reader.", 1): value for name, value in resolved.items()}
    name = re.sub(r"\W", "_", _name_workload(path, known), flags=re.ASCII)
    return Config(f"w_{name}" if name[:1].isdecimal() else name, known)


def _name_workload(path: Path, values: dict[str, Value]) -> str:
    """Return the name of a workload: that of its file; of Hydra's `.hydra/config.yaml` its model's, or the folder's."""
    if path.name != "config.yaml":
        return path.stem
    model = values.get("model.name") or values.get("model")
    if isinstance(model, str) and "${" not in model:
        return model
    folders = (folder.name for folder in path.resolve().parents)
    return next((name for name in folders if name not in ("", ".hydra")), path.stem)


def _read_tree(path: Path, files: list[Path]) -> dict[str, Any]:
    """Return the tree of a file, below `workload` where Hydra wrote it, merged with those of its `defaults`.

    A later one of `defaults` counts; the file's own values are at `_self_`, or last. `files` are those that were read
    because of `defaults`.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: not a file, but a directory, a pipe or a device")
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{path}: has more than {_MOST_BYTES} bytes, so it is no workload of DLIO")
    tree = _parse_yaml(path, content)
    defaults = tree.pop("defaults", None) or []
    own = tree["workload"] if isinstance(tree.get("workload"), dict) else tree
    names = defaults if isinstance(defaults, list) else [defaults]
    merged: dict[str, Any] = {}
    for one in names if "_self_" in names else [*names, "_self_"]:
        merged = _merge(merged, own if one == "_self_" else _read_default(path, one, files))
    return merged


def _read_default(path: Path, given: Value, files: list[Path]) -> dict[str, Any]:
    """Return the tree of one of the `defaults` of a file; empty for one of Hydra itself, which no workload is in.

    It is the name of a file in the same folder, or `workload: NAME` for one in the folder `workload` there.
    """
    group, name = next(iter(given.items())) if isinstance(given, dict) and len(given) == 1 else ("", given)
    if isinstance(group, str) and group.removeprefix("override ").startswith("hydra/"):
        return {}
    if group not in ("", "workload") or not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*", name):
        raise UsageError(f"{path}: `defaults` have {_show(given)}: expected a file's name here, or `workload: NAME`")
    files.append(path.parent / group / f"{name.removesuffix('.yaml')}.yaml")
    if len(files) > _MOST_DEFAULTS:
        raise UsageError(f"{path}: `defaults` lead to more than {_MOST_DEFAULTS} files")
    try:
        return _read_tree(files[-1], files)
    except OSError as error:
        raise UsageError(f"{path}: cannot read {files[-1]} of its `defaults`: {error.strerror}") from None


def _parse_yaml(path: Path, content: bytes) -> dict[str, Any]:
    try:
        import yaml
    except ImportError:
        raise UsageError(f"workload files of DLIO need a reader of YAML{HELP}{install_hint('dlio')}") from None
    try:
        tokens = yaml.scan(content, Loader=yaml.SafeLoader)
        if any(isinstance(token, yaml.AliasToken) for token in tokens):
            raise UsageError(f"{path}: has aliases (`*name`), which no workload of DLIO needs")
        loader = yaml.SafeLoader(content)
        node = loader.get_single_node()
        _refuse_doubles(path, node)
        tree = loader.construct_document(node) if node is not None else None
    except RecursionError:
        raise UsageError(f"{path}: has more sections within each other than any workload of DLIO") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise UsageError(f"{path}: not YAML that can be read: {place}{error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: not YAML that can be read: {' '.join(str(error).split())}") from None
    except ValueError as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path}: has a number or a date that cannot be read") from None
    if not isinstance(tree, dict) or not tree:
        raise UsageError(f"{path}: not a workload of DLIO: there are no sections such as `dataset:`")
    return tree


def _refuse_doubles(path: Path, node: Any) -> None:
    """Raise UsageError for a key that is there twice, as Hydra does: no value of the two is the one that was meant."""
    rest = [(node, "")]
    while rest:
        section, above = rest.pop()
        kind, lines = getattr(section, "id", ""), dict[str, int]()
        if kind == "sequence":
            rest += [(one, above) for one in section.value]
        for key, value in section.value if kind == "mapping" else ():
            name, line = f"{above}{key.value}", key.start_mark.line + 1
            if name in lines:
                places = f"in line {lines[name]} and in line {line}"
                raise UsageError(f"{path}: {_show(name)} is there twice, {places}\n  = help: remove one of these lines")
            lines[name] = line
            rest.append((value, f"{name}."))


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    both = {name for name, value in above.items() if isinstance(value, dict) and isinstance(below.get(name), dict)}
    return {**below, **{name: _merge(below[name], value) if name in both else value for name, value in above.items()}}


def _flatten(tree: dict[str, Any]) -> Iterator[tuple[str, Value]]:
    """Yield dotted names and values of a tree, within limits."""
    left, rest = _MOST_VALUES, [("", tree, 0)]
    while rest:
        above, node, depth = rest.pop()
        for key, value in node.items():
            name, left = f"{above}{key}", left - 1
            if left < 0 or depth > _DEEPEST:
                raise UsageError("a workload of DLIO has fewer values and sections than this")
            if isinstance(value, dict) and name not in _TABLES and name.replace("data_", "", 1) not in _TABLES:
                rest.append((f"{name}.", value, depth + 1))
            else:
                yield name, value


def _override(values: dict[str, Value], text: str) -> None:
    """Apply `++workload.a.b=c`, `workload.a.b=c` or `~workload.a.b`, as Hydra does."""
    found = _OVERRIDE.fullmatch(text)
    if found is None or (found[3] is None) != (found[1] == "~"):
        cure = f"{HELP}write `-o {text}`" if text.endswith(".dlio") else ""
        raise UsageError(f"{text}: expected an override such as ++workload.train.epochs=2{cure}")
    name = found[2]
    if found[3] is not None and not found[3].strip():
        raise UsageError(f"{text}: there is no value\n  = help: write `{text}4`, or `~{name}` for DLIO's default")
    for other in [one for one in values if one == name or one.startswith(f"{name}.")]:
        del values[other]
    if found[3] is not None:
        values.update(_flatten(_parse_yaml(Path(text), f"{name}: {found[3]}".encode())))


def _resolve_references(path: Path, values: dict[str, Value]) -> dict[str, Value]:
    """Return the values with `${workload.a.b}` replaced; what only Hydra knows, as `${oc.env:HOME}`, is left."""
    for _ in range(_DEEPEST):
        values = {name: _replace_references(name, value, values) for name, value in values.items()}
    for name, value in values.items():
        if isinstance(value, str) and _REFERENCE.fullmatch(value):
            raise UsageError(f"{path}: {name}: {value} stands for nothing in this file")
    return values


def _replace_references(name: str, value: Value, values: dict[str, Value]) -> Value:
    """Return a value with those of its `${workload.a.b}` replaced that are there; alone it keeps its type."""
    if not isinstance(value, str) or "${" not in value:
        return value
    whole = _REFERENCE.fullmatch(value)
    if whole:
        return values.get(whole[1], value)
    text = value
    if len(value) <= _LONGEST:
        text = _REFERENCE.sub(lambda found: str(values.get(found[1], found[0])), value)
    if len(text) > _LONGEST:
        raise UsageError(f"{name}: {_show(value)} is longer than any value of a workload of DLIO")
    return text


def _show(value: Value) -> str:
    text = printable(" ".join(str(value).split()))
    return text if len(text) <= 60 else f"{text[:57]}..."
