"""Logs can be searched: every event has a constant name, which docs/operations.md explains."""

import ast
import re
from collections.abc import Iterator

from tests.house.test_code_rules import ROOT, listing, modules_under, tree_of

LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}
SNAKE_CASE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")

SECTION = re.compile(r"^## Log events$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)


def events_logged() -> Iterator[tuple[str, ast.expr | None]]:
    """Where something is logged, and what stands there as the event."""
    for path in modules_under("app"):
        for node in ast.walk(tree_of(path)):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=name), args=args):
                    place = f"{path}:{node.lineno}"
                    if name in LEVELS:
                        yield place, args[0] if args else None
                    elif name == "log":
                        yield place, args[1] if len(args) > 1 else None
                case _:
                    pass


def names_logged() -> set[str]:
    """The events that the service logs."""
    return {
        node.value
        for _, node in events_logged()
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def loggers_made() -> Iterator[tuple[str, str]]:
    """Where a logger is made, and the statement that does it."""
    for path in modules_under("app"):
        for node in ast.walk(tree_of(path)):
            text = ast.unparse(node) if isinstance(node, ast.stmt) else ""
            is_simple = not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            if is_simple and re.search(r"\bget_?[lL]ogger\b", text):
                yield f"{path}:{node.lineno}", text  # type: ignore[attr-defined] # a statement has it


def test_every_event_is_a_constant_in_snake_case() -> None:
    """What is logged is named by a literal of small letters and underscores."""
    faults = [
        place
        for place, node in events_logged()
        if not isinstance(node, ast.Constant)
        or not isinstance(node.value, str)
        or not SNAKE_CASE.fullmatch(node.value)
    ]

    assert faults == [], listing(faults)


def test_every_logger_is_structured_and_called_log() -> None:
    """There is no logger that the other tests of this file would not see."""
    faults = [
        f"{place}: {text}"
        for place, text in loggers_made()
        if text != "log = structlog.get_logger(__name__)"
        # The one place that takes in what libraries log.
        and not place.startswith("app/telemetry.py")
    ]

    assert faults == [], listing(faults)


def test_the_documentation_lists_exactly_the_events_that_there_are() -> None:
    """docs/operations.md names every event, and no other."""
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = SECTION.search(text)
    assert section is not None

    listed = ROW.findall(section[1])

    assert listed == sorted(listed)
    assert set(listed) == names_logged()
