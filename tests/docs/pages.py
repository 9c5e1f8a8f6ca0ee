"""The pages of the documentation, taken apart: blocks, what is noted of them, tables, links."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
ORDER = ("definitions", "answers", "compensations", "callbacks", "states-and-verbs")
"""The pages that are read one after the other; then comes ``operations``."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOTE = re.compile(r"<!-- (\w+): ([^>]+?) -->\n\Z")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_CELLS = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block.

    Attributes:
        page: the name of its page.
        line: where it begins.
        language: behind the fence.
        text: what it holds.
        notes: what comments right before it say, as ``<!-- in: step -->``.
        is_next: nothing stands between it and the block before it.
    """

    page: str
    line: int
    language: str
    text: str
    notes: Mapping[str, str] = field(default_factory=dict)
    is_next: bool = False

    @property
    def where(self) -> str:
        """For failures, and as a test's id."""
        return f"{self.page}:{self.line}"


@cache
def text_of(page: str) -> str:
    """A page's text: of ``docs/``, or of the root where it is in capitals."""
    folder = ROOT if page.isupper() else DOCS
    return (folder / f"{page}.md").read_text(encoding="utf-8")


@cache
def blocks_of(page: str) -> tuple[Block, ...]:
    """All fenced blocks of a page, in order."""
    text, found, end = text_of(page), list[Block](), 0
    for match in _FENCE.finditer(text):
        notes, begin = {}, match.start()
        while (note := _NOTE.search(text, end, begin)) is not None:
            notes[note[1]] = note[2]
            begin = note.start()
        found.append(
            Block(
                page=page,
                line=text.count("\n", 0, match.start()) + 1,
                language=match[1],
                text=match[2],
                notes=notes,
                is_next=bool(found) and not text[end:begin].strip(),
            )
        )
        end = match.end()
    return tuple(found)


def blocks_in(*languages: str, pages: tuple[str, ...] = ORDER) -> list[Block]:
    """The blocks of all pages in some languages."""
    return [block for page in pages for block in blocks_of(page) if block.language in languages]


def section(page: str, heading: str) -> str:
    """What stands under a heading, up to the next one of any depth."""
    text = text_of(page)
    match = re.search(rf"^#+ {re.escape(heading)}$", text, re.MULTILINE)
    assert match is not None, f"{page} has no heading {heading!r}"
    following = _HEADING.search(text, match.end())
    return text[match.end() : following.start() if following else len(text)]


def rows(text: str) -> Iterator[list[str]]:
    """The rows of all tables of a text but their heads."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        is_row = line.startswith("| ") and not line.startswith("| ---")
        is_head = is_row and lines[number + 1 : number + 2] and lines[number + 1].startswith("| -")
        if is_row and not is_head:
            yield [cell.strip() for cell in _CELLS.split(line)[1:-1]]


def words(text: str) -> set[str]:
    """What stands in backticks."""
    return set(re.findall(r"`([^`\n]+)`", text))


def first_words(page: str, heading: str) -> set[str]:
    """What stands in backticks in the first cells of the tables under a heading."""
    return set[str]().union(*(words(cells[0]) for cells in rows(section(page, heading))))


def links_of(page: str) -> list[str]:
    """The targets of all links of a page, outside of blocks."""
    return _LINK.findall(_FENCE.sub("", text_of(page)))


def anchors_of(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    plain = _FENCE.sub("", text)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(plain)
    }
