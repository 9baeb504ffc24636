"""Another number of files, in DLIO's words: samples of a pattern and its layout change together, as in DLIO."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.language.setting_words import find_override

BLOCK = """dlio 1
workload w
{param}dataset d {{
    samples {samples}
    size 1 MB
    path "d"
    {layout}
}}
prepare d
"""


@pytest.mark.parametrize(
    ("param", "samples", "layout", "answer"),
    [
        ("", "168", "layout file per sample", "-D d.samples=28"),
        ("", "168", "", "-D d.samples=28"),
        ("", "1_280", "layout 64 files  # as DLIO", '-D d.layout="28 files" -D d.samples=560'),
        ("", "70", "layout shared file", '-D d.layout="28 files" -D d.samples=1960'),
        ("", "10 * 7", "layout 10 files", '-D d.layout="28 files"'),
        ("param files = 7\n", "$files * 10", "layout $files files", "-D files=28"),
        ("param files = 7\n", "70", "layout $files files", '-D d.layout="28 files"'),
    ],
)
@pytest.mark.parametrize("name", ["num_files_train", "++workload.dataset.num_files_train"])
def test_more_files_of_as_many_samples_each(
    tmp_path: Path, param: str, samples: str, layout: str, answer: str, name: str
) -> None:
    path = tmp_path / "w.dlio"
    path.write_text(BLOCK.format(param=param, samples=samples, layout=layout))
    assert find_override(path, name.lstrip("+"), "28") == answer
