"""The page and the files: complete in themselves, and nothing that results say becomes markup."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest

from dliosim.cli import main
from dliosim.pictures.html import table
from dliosim.pictures.html_report import page
from dliosim.report.reader.load import SavedRun, load_results
from dliosim.report.run.answer_lines import answer_lines
from dliosim.report.text_table import Table
from tests.examples import ALL
from tests.pictures.sample import comparison, write_comparison, write_run

# The first part would be an error, were it taken for mathematics.
HOSTILE = '$\\nonsense{1}$ <script>alert("x")</script> & ]]> --> \x1b[31m 試'
HOSTILE_REASON = {"kind": "not_run", "values": {"label": HOSTILE, "error": HOSTILE}, "text": HOSTILE}


class Tags(HTMLParser):
    """Every start tag with its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def tags(text: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(text)
    return parser.found


def svgs(text: str) -> list[bytes]:
    return [unquote_to_bytes(one) for one in re.findall(r'src="data:image/svg\+xml,([^"]+)"', text)]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a run and a comparison whose every text is hostile."""
    place = tmp_path_factory.mktemp("hostile")
    write_run(
        place / "run", ranks=2, steps=4, epochs=2, name=HOSTILE, title=HOSTILE, pattern=HOSTILE, arguments=(HOSTILE,)
    )
    content = json.loads((place / "run" / "results.json").read_text())
    content["phases"][-1]["notes"] = content["arguments"] = [HOSTILE]
    content["environment"]["mpi_library"] = content["phases"][-1]["api"] = HOSTILE
    content["environment"]["details"] = {HOSTILE: HOSTILE}
    for answer in content["answer"]:
        answer["verdict"], answer["reasons"] = HOSTILE, [HOSTILE_REASON]
        answer["advice"] = [HOSTILE_REASON | {"command": HOSTILE}]
    (place / "run" / "results.json").write_text(json.dumps(content))
    (place / "other").mkdir()
    for name in ("results.json", "timeline.h5"):
        (place / "other" / name).write_bytes((place / "run" / name).read_bytes())
    compared = comparison(name=HOSTILE, title=HOSTILE, reference=HOSTILE, notes=[HOSTILE])
    compared["answer"] |= {
        "use": HOSTILE,
        "against": HOSTILE,
        "tied": [HOSTILE],
        "ahead": [HOSTILE],
        "limits": [HOSTILE_REASON],
    }
    compared["variants"][0]["label"] = HOSTILE
    compared["varied"][0]["name"] = compared["caches"] = compared["environment"]["mpi_io"] = HOSTILE
    compared["overrides"] = [[HOSTILE, HOSTILE]]
    compared["not_run"][0] = {"label": HOSTILE, "reason": HOSTILE}
    write_comparison(place / "<img src=x>", **compared)
    return page(load_results([str(place / name) for name in ("run", "other", "<img src=x>")], with_arrays=True))


def test_no_text_becomes_markup(hostile: str) -> None:
    found = tags(hostile)
    allowed = {"html", "head", "meta", "title", "style", "body", "nav", "ul", "li", "a", "h1", "h2", "h3", "h4", "p"}
    allowed |= {"dl", "dt", "dd", "div", "table", "thead", "tbody", "tr", "th", "td", "figure", "img", "figcaption"}
    assert {tag for tag, _ in found} <= allowed | {"details", "summary", "pre", "strong", "code"}
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;" in hostile
    assert "&lt;img src=x&gt;</dd>" in hostile
    assert "\x1b" not in hostile
    for tag, attributes in found:
        assert not any(name.startswith("on") for name in attributes), tag


def test_nothing_is_loaded_from_anywhere(hostile: str) -> None:
    for tag, attributes in tags(hostile):
        if tag == "a":
            assert (attributes["href"] or "").startswith("#")
        elif tag == "img":
            assert (attributes["src"] or "").startswith("data:image/svg+xml,%3Csvg")
        else:
            assert "href" not in attributes and "src" not in attributes
    assert "default-src 'none'" in hostile
    assert "url(" not in hostile and "@import" not in hostile


def test_every_link_leads_to_a_heading(hostile: str) -> None:
    found = tags(hostile)
    anchors = [attributes["id"] for _, attributes in found if "id" in attributes]
    assert len(anchors) == len(set(anchors))
    assert {attributes["href"] for tag, attributes in found if tag == "a"} == {f"#{one}" for one in anchors}


def test_every_svg_is_xml_without_scripts_links_or_mathematics(hostile: str) -> None:
    found = svgs(hostile)
    assert len(found) > 15
    for one in found:
        names = {element.tag.rsplit("}", 1)[-1] for element in ElementTree.fromstring(one).iter()}
        assert not names & {"script", "foreignObject", "a"}
    # With the dollars, so it is not a formula.
    assert any(rb"$\nonsense" in one for one in found)


def test_a_table_wider_than_a_terminal_is_broken_where_text_breaks_it(tmp_path: Path) -> None:
    write_comparison(tmp_path / "cmp")
    found = load_results([str(tmp_path / "cmp")], with_arrays=True)
    parts = [
        [re.sub(r"\s", " ", heading) for heading in re.findall("<th>([^<]*)</th>", part)]
        for part in page(found).split("<table>")[1:]
    ]
    assert [one[0] for one in parts] == ["variant"] * 3 + ["api"]  # figures in two parts
    assert (parts[0][-1], parts[-1][1:]) == ("verdict", ["shared file", "file per sample"])


def one_run(place: Path, **changed: object) -> str:
    """The page of a run whose answer and expectations are changed."""
    write_results(place, **changed)
    return page(load_results([str(place)], with_arrays=True))


def write_results(place: Path, **changed: object) -> None:
    """A run whose answer is changed."""
    write_run(place, ranks=2, steps=8, epochs=2)
    content = json.loads((place / "results.json").read_text())
    content["answer"][0].update(changed)
    (place / "results.json").write_text(json.dumps(content))


def body_text(text: str) -> str:
    """The text of a page without tags and style."""
    body = re.sub("<style>.*</style>|</?strong[^>]*>", "", text, flags=re.DOTALL)
    return " ".join(unescape(re.sub("<[^>]*>", " ", body)).split())


def test_the_page_begins_with_the_answer_as_on_a_terminal(tmp_path: Path) -> None:
    advice = {"kind": "bypass_cache", "values": {}, "command": "dliosim run a.dlio -D 'd.layout=shared file'"}
    rate = {name: {"mean": rate, "low": rate, "high": rate} for name, rate in RATES.items()}
    changed = {"verdict": "does not feed", "source": "device", "from_storage": True, "reasons": [], "epochs": [1]}
    text = one_run(tmp_path, **changed, **rate, advice=[advice])
    (saved,) = load_results([str(tmp_path)], with_arrays=False)
    assert isinstance(saved, SavedRun)
    shown = body_text(text)
    places = [shown.index(" ".join(line.split())) for line in answer_lines(saved.run).splitlines()[1:]]
    assert places == sorted(places)
    assert places[-1] < shown.index("Utilization by epoch")
    assert "loop needs 2.91 GB/s, got 1.97 GB/s from the device (epoch 1)" in shown
    assert "missed: expect" not in shown and "MISSED: expect utilization of train at least 75 %" in shown
    assert f"<code>{escape(advice['command'])}</code>" in text
    assert "2.91\N{NO-BREAK SPACE}GB/s" in text
    assert shown.count("MISSED: expect utilization of train") == 1


RATES = {"needs_bytes_per_second": 2.91e9, "got_bytes_per_second": 1.97e9, "storage_utilization": 0.61}


def test_a_verdict_is_in_words_and_in_colour(tmp_path: Path) -> None:
    write_results(tmp_path / "alone", verdict="feeds")
    text = page(load_results([str(tmp_path / "alone")], with_arrays=False))
    assert '<strong class="good">feeds</strong>' in text
    assert '<div class="answer good">' in text
    kinds = {"does not feed": "bad", "too close to say": "open", "cannot say": "open", "not asked": "plain"}
    for verdict in kinds:
        write_results(tmp_path / verdict, verdict=verdict)
    text = page(load_results([str(tmp_path / verdict) for verdict in kinds], with_arrays=False))
    for verdict, kind in kinds.items():
        assert f'<strong class="{kind}">{verdict}</strong>' in text


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of two runs and a comparison."""
    place = tmp_path_factory.mktemp("several")
    for ranks in (1, 2):
        write_run(place / f"{'long-name-' * 5}{ranks}", ranks=ranks, steps=8, epochs=2)
    write_comparison(place / "of variants")
    return page(load_results([str(one) for one in sorted(place.iterdir())], with_arrays=True))


def test_several_results_begin_with_the_verdict_of_each_and_have_labels_by_what_differs(several: str) -> None:
    text, shown = several, body_text(several)
    for label in ("cosmoflow, 1 rank", "cosmoflow, 2 ranks"):
        assert f"{label}, train: does not feed" in shown
        assert f"{label}</h2>" in text
        assert f"{label} (" not in shown
    assert shown.index("MISSED: expect") < shown.index("Results side by side ")


def test_a_page_of_several_has_the_answer_then_all_pictures_then_tables_and_hashes_last(several: str) -> None:
    check_order(several, 3)


@pytest.mark.skipif(not ALL, reason="by day a page of several results")
@pytest.mark.parametrize("name", ["run", "cmp"])
def test_a_page_of_one_has_the_answer_then_all_pictures_then_tables_and_hashes_last(tmp_path: Path, name: str) -> None:
    write_run(tmp_path / "run", ranks=2, steps=8, epochs=2)
    write_comparison(tmp_path / "cmp")
    check_order(page(load_results([str(tmp_path / name)], with_arrays=True)), 1)


def check_order(text: str, results: int) -> None:
    marks = ['class="answer', "<figure>", "</figure>", "<table>", "</table>", "<dt>directory</dt>"]
    places = [place for mark in marks for place in (text.index(mark), text.rindex(mark))]
    first = dict(zip(marks, places[::2], strict=True))
    last = dict(zip(marks, places[1::2], strict=True))
    assert first['class="answer'] < first["<figure>"] < last["</figure>"] < first["<table>"]
    assert first["</table>"] < first["<dt>directory</dt>"]
    assert results == text.count("<dt>directory</dt>")


def test_of_many_results_only_pictures_of_all_together_are_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "0", ranks=2, steps=8, epochs=2)
    for number in range(1, 9):
        shutil.copytree(tmp_path / "0", tmp_path / f"{number}")
    given = [str(place) for place in sorted(tmp_path.iterdir())]
    assert main(["report", *given, "--html", str(tmp_path / "page.html"), "--png", str(tmp_path / "png")]) == 0
    text = (tmp_path / "page.html").read_text()
    assert len(svgs(text)) == 1
    assert "with more than 8 results; `dliosim report DIR --html page.html` draws those of one" in body_text(text)
    assert "9 of 9 answers: does not feed" in body_text(text) and "and 1 line more" in body_text(text)
    assert all(f": {place}" in body_text(text) for place in given)
    assert {path.name for path in (tmp_path / "png").iterdir()} == {
        f"all-train-side-by-side.{kind}" for kind in ("png", "svg")
    }
    assert "are left out with more than 8 results" in capsys.readouterr().out


def test_a_page_of_ten_results_has_less_than_2_megabytes(tmp_path: Path) -> None:
    # Each page of one result says the most that it can be of ten: rows and legends of several results are short.
    write_run(tmp_path, ranks=4, steps=64, epochs=5)
    found = load_results([str(tmp_path)], with_arrays=True)
    assert len(page(found)) < 200_000


def test_a_picture_that_is_wider_than_a_phone_says_so(hostile: str) -> None:
    narrow = hostile[hostile.index("@media screen and (max-width: 47rem)") :]
    assert 'figure .scroll::before { content: "What is wider than the screen scrolls sideways"' in narrow
    assert all(piece.startswith('<img alt="') for piece in re.findall(r'<div class="scroll">(<img.{9})', hostile))


def test_every_picture_has_a_title_and_says_how_to_read_it(hostile: str) -> None:
    figures = re.findall("<figure>.*?</figure>", hostile, flags=re.DOTALL)
    assert len(figures) == len(svgs(hostile))
    for one in figures:
        (title,) = re.findall("<h4>(.+?)</h4>", one)
        assert f'alt="{title}"' in one
        assert "How to read it: " in one


def test_the_command_of_a_run_can_be_pasted(tmp_path: Path) -> None:
    write_run(tmp_path / "run", ranks=1, steps=2, epochs=1, arguments=("run", "a b.dlio", "-D", "layout=shared file"))
    text = page(load_results([str(tmp_path / "run")], with_arrays=False))
    command = escape("dliosim run 'a b.dlio' -D 'layout=shared file'")
    assert f"<dd>{command}</dd>" in text
    assert f"<dd>{tmp_path / 'run'}</dd>" in text


def test_a_comparison_says_on_what_it_was_made(tmp_path: Path) -> None:
    write_comparison(tmp_path / "cmp")
    text = page(load_results([str(tmp_path / "cmp")], with_arrays=False))
    for said in (
        "-D epochs=1",
        "cold before each pass",
        "4 on 1 node, 4 on the 8 cores of a node",
        "/scratch, lustre, rw",
    ):
        assert f"<dd>{said}</dd>" in text


def test_the_same_results_give_the_same_page_in_any_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "run", ranks=2, steps=8, epochs=2)
    monkeypatch.chdir(tmp_path)
    assert main(["report", "run", "--html", "here.html"]) == 0
    # This process has a seed of its own for hashes, at random as a rule.
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    command = [sys.executable, "-m", "dliosim.cli", "report", "run", "--html", "there.html"]
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    here, there = (Path(f"{name}.html").read_bytes() for name in ("here", "there"))
    assert here == there
    assert len(svgs(here.decode())) == 10


def test_pictures_become_files_with_telling_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for ranks in (1, 2):
        write_run(tmp_path / f"on {ranks}", ranks=ranks, steps=8, epochs=2)
    write_comparison(tmp_path / "cmp")
    given = [str(tmp_path / name) for name in ("on 1", "on 2", "cmp")]
    assert main(["report", *given, "--png", str(tmp_path / "out" / "new")]) == 0
    names = {path.name for path in (tmp_path / "out" / "new").iterdir()}
    assert {"all-train-scaling.png", "on-2-train-bandwidth-by-rank.svg", "cmp-ratios.png"} <= names
    assert "on-1-train-bandwidth-by-rank.svg" not in names
    assert {name[:-4] for name in names if name.endswith(".png")} == {name[:-4] for name in names if ".svg" in name}
    assert f"{len(names) // 2} pictures, each as PNG and SVG" in capsys.readouterr().out
    for path in (tmp_path / "out" / "new").glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_a_table_that_is_wider_than_a_phone_says_so_and_a_narrow_one_does_not() -> None:
    narrow = Table("t", ("", "a"), (("x", "1"),))
    wide = Table("t", ("", *"abcdefgh"), (("x", *["12345678"] * 8),))
    assert ['class="scroll wide"' in table(one) for one in (narrow, wide)] == [False, True]
