#!/usr/bin/env python
"""Write the tables of docs/evidence/published.md: bytes that others have measured, and those of `dliosim plan`.

    scripts/dev/write_published.py

A table stands between `<!-- published: NAME -->` and `<!-- end of published -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dliosim import PATTERNS
from dliosim.language.compile import compile_pattern
from dliosim.model import Job
from dliosim.plan.forecast.forecast import forecast

PAGE = Path(__file__).resolve().parents[2] / "docs" / "evidence" / "published.md"
MARKS = re.compile(r"(<!-- published: (\w+) -->\n).*?(?=<!-- end of published -->)", re.DOTALL)


@dataclass(frozen=True)
class Row:
    """A run that was published, and the plan of the same."""

    label: str  #: what the publication calls it
    published: float  #: GB that it read, of 2^30 B
    pattern: str  #: name of the pattern
    ranks: int  #: ranks of the job
    options: tuple[tuple[str, str], ...]  #: what `-D` gives
    cause: str = ""  #: of the difference, if it is not that of all rows of the table

    @cached_property
    def plan_gb(self) -> float:
        """GB of 2^30 B that the loops of the pattern read by its plan."""
        workload, _ = compile_pattern(PATTERNS / f"{self.pattern}.dlio", self.options, Job(self.ranks))
        phases = forecast(workload).phases
        return sum(one.bytes.total * one.times for one in phases if one.first_epoch) / 2**30

    @property
    def difference(self) -> float:
        """Surplus of the plan, as a share of what was published."""
        return self.plan_gb / self.published - 1


def sweep(side: int, samples: int) -> tuple[tuple[str, str], ...]:
    """Return the options for one of DLIO's sweeps on 8 ranks: square samples of float64 in one file, each read once."""
    return (
        ("samples", str(samples)),
        ("images.shape", f"{side} x {side} of float64"),
        ("images.layout", "shared file"),
        ("train.shard", "by sample"),
        ("train.batch", "1 per rank"),
        ("steps", str(samples // 8)),
        ("through", "direct"),
    )


#: The sweeps: side of a sample, number of samples; then for each label of a chunk its side and the GB.
FFN, COSMIC = sweep(181, 43_008), sweep(202, 6000)
CHUNKS = {"1 KB": 32, "2 KB": 46, "4 KB": 64, "8 KB": 91, "16 KB": 128, "32 KB": 182, "64 KB to 32 MB": 256}
FFN_READ = (11.925, 10.892, 11.844, 10.629, 21.009, 10.500, 10.500)
COSMIC_READ = (2.266, 2.378, 2.937, 3.336, 2.931, 5.924, 1.824)

#: What random float64 compresses to by each codec: 32768 B to the median of the chunks of Cosmic Tagger.
SHRINK = {
    "gzip 1 to 3": ("gzip 1", "32768 : 31052"),
    "gzip 4 to 9": ("gzip 4", "32768 : 30887"),
    "lzf": ("lzf", "off"),
}
FFN_COMPRESSED = (10.019, 9.962, 10.664)
COSMIC_COMPRESSED = (1.748, 1.736, 1.850)


def chunk_rows(options: tuple[tuple[str, str], ...], side: int, read: tuple[float, ...]) -> Iterator[Row]:
    """Yield a row for each label of a chunk."""
    for (label, chunk), published in zip(CHUNKS.items(), read, strict=True):
        cut = min(chunk, side)
        yield Row(label, published, "ffn", 8, (*options, ("chunk", f"{cut} x {cut}")))


def rows_by_codec(square: tuple[tuple[str, str], ...], stored: float, read: tuple[float, ...]) -> Iterator[Row]:
    """Yield a row for each codec and level, all in chunks of 64 x 64; level 0 stores blocks as they are."""
    tiles = (*square, ("chunk", "64 x 64"))
    yield Row("gzip 0", stored, "ffn", 8, tiles)
    for (label, (codec, ratio)), published in zip(SHRINK.items(), read, strict=True):
        yield Row(label, published, "ffn", 8, (*tiles, ("compress", codec), ("images.compressible", ratio)))


_WHOLE = (("scale", "1"),)
TABLES = {
    "ffn_chunks": tuple(chunk_rows(FFN, 181, FFN_READ)),
    "cosmic_chunks": tuple(chunk_rows(COSMIC, 202, COSMIC_READ)),
    "ffn_compressed": tuple(rows_by_codec(FFN, 11.850, FFN_COMPRESSED)),
    "cosmic_compressed": tuple(rows_by_codec(COSMIC, 2.939, COSMIC_COMPRESSED)),
    "applications": (
        Row("CANDLE NT3, 8", 5.83, "candle", 8, _WHOLE),
        Row("CANDLE NT3, 128", 93.27, "candle", 128, _WHOLE),
        Row("CosmoFlow, 8", 2048.01, "cosmoflow_paper", 8, (*_WHOLE, ("files", "64"), ("train.epochs", "16"))),
        Row("CosmoFlow, 128", 8192.03, "cosmoflow_paper", 128, _WHOLE),
        Row("Cosmic Tagger, 8", 2.44, "cosmic_tagger", 8, _WHOLE, "546 kB a sample, of 703 in the mean: they vary"),
        Row("Distributed FFN, 8", 1.37, "ffn", 8, _WHOLE, "14 kB a sample of [P]'s 400 steps of 32, which has 32 KiB"),
        Row("Distributed FFN, 512", 3298.14, "ffn", 512, _WHOLE, "540 kB a sample: not published what they are"),
        Row("FRNN, 8", 18.33, "frnn", 8, _WHOLE, "2607 files of 9.48 GB, read 1.9 times; here once"),
        Row("FRNN, 512", 27.18, "frnn", 512, _WHOLE, "2245 files of 6.07 GB, read 4.5 times; here 5 files a rank"),
        Row("TF CNN, 8", 12.09, "tf_cnn", 8, _WHOLE, "6190 samples a rank; here 3200, [P]'s 100 steps of 32"),
        Row("TF CNN, 512", 3864.95, "tf_cnn", 512, _WHOLE, "30,920 samples a rank; here 2048, those of 2 files"),
        Row("Climate, 128", 1.19, "climate_segmentation", 128, _WHOLE, "10 MB a rank; [P] has 25 kB"),
    ),
}  # fmt: skip


def write_table(name: str) -> str:
    """Return the lines of a table; causes have a column if any row has its own."""
    table = TABLES[name]
    heads, columns = "| run | published | `plan` | difference |", 4
    if has_causes := any(row.cause for row in table):
        heads, columns = f"{heads} cause |", 5
    lines = [f"{heads}\n{'|---' * columns}|\n"]
    for row in table:
        digits = 3 if row.published < 100 else 1
        figures = f"{row.published:.{digits}f} | {row.plan_gb:.{digits}f} | {row.difference:+.2%}"
        lines.append(f"| {row.label} | {figures} |{f' {row.cause} |' if has_causes else ''}\n")
    return "".join(lines)


def fill_page(page: str) -> str:
    """Return the page with its tables as the plans are now."""
    return MARKS.sub(lambda found: found[1] + write_table(found[2]), page)


if __name__ == "__main__":
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
