"""The shipped patterns, and every example of the manual."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dliosim.errors import UsageError
from dliosim.language.compile import compile_pattern
from dliosim.language.diagnostics import catalogue, explain_code
from dliosim.language.syntax import declarations
from dliosim.language.unparse import explain_pattern
from dliosim.model import Job, Split

ROOT = Path(__file__).parent.parent.parent
PATTERNS = sorted((ROOT / "patterns").glob("*.dlio"))
MANUAL = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8")
CATALOGUE = ROOT / "dliosim" / "language" / "errors.md"


@pytest.mark.parametrize("ranks", [1, 3, 4, 512])
@pytest.mark.parametrize("path", PATTERNS, ids=lambda path: str(path.stem))
def test_a_shipped_pattern_compiles_without_a_warning(path: Path, ranks: int) -> None:
    workload, warnings = compile_pattern(path, [], Job(ranks))
    assert workload.name == path.stem
    assert workload.title
    assert warnings == ()


@pytest.mark.parametrize(
    "name, split, parameters",
    [
        ("8b", Split(1, 1, 8), 8_030_261_248),
        ("70b", Split(8, 1, 8), 69_882_617_856),
        ("405b", Split(8, 32, 2), 405_853_388_800),
        ("1t", Split(8, 64, 2), 1_183_035_102_480),
    ],
)
def test_a_llama_has_the_published_parameters_ranks_and_bytes(name: str, split: Split, parameters: int) -> None:
    path = ROOT / "patterns" / f"llama3_{name}.dlio"
    whole = compile_pattern(path, [("scale", "1")], Job(split.ranks))[0].checkpoint("state")
    assert whole.model is not None
    assert whole.model.parameters == parameters
    assert whole.parallel == split
    assert sum(part.size for part in whole.parts_for(split)) == 14 * parameters
    smaller = compile_pattern(path, [], Job(split.ranks - 1))[0].checkpoint("state")
    assert smaller.parallel == replace(split, played=split.ranks - 1)


@pytest.mark.parametrize("path", PATTERNS, ids=lambda path: str(path.stem))
def test_a_shipped_pattern_is_small_for_four_ranks(path: Path) -> None:
    workload, _ = compile_pattern(path, [], Job(4))
    data = sum(dataset.samples * dataset.size.mean for dataset in workload.datasets)
    kept = 0
    for checkpoint in workload.checkpoints:
        split = checkpoint.split(4)
        sizes = (part.size * (split.ranks if part.scope == "per rank" else 1) for part in checkpoint.parts_for(split))
        kept += sum(sizes) * split.present_ranks // split.ranks * (checkpoint.keep or 2)
    assert data + kept < 2**31


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("path", PATTERNS, ids=lambda path: str(path.stem))
def test_a_pattern_as_explained_is_the_same_workload(path: Path, ranks: int, tmp_path: Path) -> None:
    workload, _ = compile_pattern(path, [("seed", "5")], Job(ranks, 1))
    resolved = tmp_path / path.name
    resolved.write_text(explain_pattern(path, [("seed", "5")], Job(ranks, 1)), encoding="utf-8")
    again, warnings = compile_pattern(resolved, [], Job(ranks, 1))
    assert again.digest() == workload.digest()
    assert warnings == ()


def test_an_explained_pattern_says_where_each_value_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = explain_pattern(Path("patterns/cosmoflow.dlio"), [("layout", "shared file"), ("train.readers", "1")], Job(4))
    assert re.search(r"layout +shared file +# patterns/cosmoflow.dlio:\d+, \$layout from <command line>\n", text)
    assert re.search(r"readers +1 by batch +# <command line>\n", text)
    assert re.search(r"open +once +# default\n", text)


# ---- the manual ---------------------------------------------------------------------------------------------------


def examples() -> list[str]:
    return re.findall(r"^```dlio\n(.*?)^```", MANUAL + GUIDE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(examples())))
def test_every_whole_pattern_of_the_manual_compiles(number: int, tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    for other in ("cosmoflow.dlio", "profiles/h100.dlio"):
        (tmp_path / other).write_text((ROOT / "patterns" / other).read_text(encoding="utf-8"), encoding="utf-8")
    path = tmp_path / "example.dlio"
    path.write_text(examples()[number], encoding="utf-8")
    assert compile_pattern(path, [], Job(4))[1] == ()


def test_the_reference_has_every_setting_and_statement() -> None:
    heads = {head for settings in declarations.SETTINGS.values() for head in settings} | set(declarations.STATEMENTS)
    assert [head for head in sorted(heads) if f"`{head}" not in REFERENCE] == []


def test_the_catalogue_in_docs_is_the_one_that_is_packaged() -> None:
    assert (ROOT / "docs" / "errors.md").read_text(encoding="utf-8") == CATALOGUE.read_text(encoding="utf-8")


def test_every_code_that_the_package_uses_has_an_entry() -> None:
    sources = (ROOT / "dliosim").rglob("*.py")
    used = {code for path in sources for code in re.findall(r'"([EWR]\d{3})"', path.read_text(encoding="utf-8"))}
    assert used - set(catalogue()) == set()
    assert {"R401", "R402", "R403", "R404", "R405"} <= set(catalogue())


def test_a_code_is_explained_in_either_case_and_an_unknown_one_lists_the_others() -> None:
    assert explain_code("e204").startswith("E204: ")
    with pytest.raises(UsageError, match="E001, E002"):
        explain_code("E999")
