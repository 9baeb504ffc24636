"""The tables of docs/evidence/published.md, and how near plans are to what others have measured."""

from __future__ import annotations

import pytest

from tests.scripts.fidelity import script

published = script("write_published")


def test_the_page_shows_the_plans_as_they_are() -> None:
    page = published.PAGE.read_text(encoding="utf-8")
    assert published.fill_page(page) == page, "type: scripts/dev/write_published.py"


@pytest.mark.parametrize("row", published.TABLES["ffn_chunks"], ids=lambda row: str(row.label))
def test_plans_have_the_bytes_of_chunks_that_were_published(row: object) -> None:
    assert abs(row.difference) < 0.01  # type: ignore[attr-defined]


@pytest.mark.parametrize("row", published.TABLES["applications"][:4], ids=lambda row: str(row.label))
def test_plans_have_the_bytes_of_the_applications_that_are_fully_described(row: object) -> None:
    assert abs(row.difference) < 0.01  # type: ignore[attr-defined]
