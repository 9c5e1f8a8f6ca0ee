"""Every link leads somewhere, every file named is there, and the diagram is that of the code."""

import re

import pytest

from tests.docs.diagram import BEGIN, END, PAGE, diagram
from tests.docs.pages import (
    DOCS,
    ORDER,
    ROOT,
    anchors_of,
    links_of,
    rows,
    section,
    text_of,
    words,
)

PAGES = (*ORDER, "operations", "README", "ARCHITECTURE", "CHANGELOG")

_FILE = re.compile(
    r"(?:app|docs|sagas|scripts|tests|examples|migrations|requirements)/[\w./*-]*"
    r"|[\w-]+\.(?:md|toml|yaml|json)"
)
EXAMPLES = {"rent_bike.yaml", "slow_bank.json"}
"""Files that a reader makes."""


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """To a file, and to a heading in it."""
    folder = ROOT if page.isupper() else DOCS
    for link in links_of(page):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (folder / path) if path else folder / f"{page}.md"
        assert target.exists(), link
        if anchor:
            assert anchor in anchors_of(target.read_text(encoding="utf-8")), link


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_named_are_there(page: str) -> None:
    """What stands in backticks and looks like a file of ours is one."""
    missing = [
        name
        for name in words(text_of(page)) - EXAMPLES
        if _FILE.fullmatch(name)
        and not list(ROOT.glob(name.rstrip("/")))
        and not (DOCS / name).exists()
    ]

    assert missing == []


def test_where_to_read_is_there() -> None:
    """A module that is named without a folder lies in the one that is named before it."""
    named, folder = 0, ROOT
    for _, where in rows(section("ARCHITECTURE", "Where to read")):
        for name in re.findall(r"`([\w./]+(?:\.py|/))`", where):
            path = ROOT / name if "/" in name else folder / name
            folder = path if path.is_dir() else path.parent
            assert path.exists(), name
            named += 1
    assert named > 20


def test_every_page_is_linked() -> None:
    """The overview leads to each page, and to the decisions."""
    linked = set(links_of("README"))

    assert {f"docs/{page}.md" for page in (*ORDER, "operations")} <= linked
    assert "docs/decisions" in linked


def test_the_diagram_is_that_of_the_machine() -> None:
    """Where it is not, `scripts/state-diagram` makes it anew."""
    text = PAGE.read_text(encoding="utf-8")

    assert diagram() == BEGIN + text.partition(BEGIN)[2].partition(END)[0] + END
