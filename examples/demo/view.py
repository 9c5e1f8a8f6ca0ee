"""What the demo draws: a saga while it moves, and the ledger at the end."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from examples.demo.clients import Json
from examples.world import Ledger, Received

STYLES = {
    "pending": "dim",
    "running": "bold cyan",
    "backing_off": "yellow",
    "succeeded": "green",
    "failed": "red",
    "compensating": "bold magenta",
    "compensated": "magenta",
    "compensation_failed": "bold red",
    "completed": "bold green",
    "stuck": "bold red",
}

MARKS = {
    "pending": "·",
    "running": "▶",
    "backing_off": "…",
    "succeeded": "✔",
    "failed": "✘",
    "compensating": "◀",
    "compensated": "↩",
    "compensation_failed": "✘",
}


def draw_saga(saga: Json | None, notes: Sequence[str]) -> RenderableType:
    """The steps of a saga in a table, with what is being done to it."""
    table = Table(show_edge=False, pad_edge=False, box=None, header_style="dim")
    for column in ("step", "status", "effect", "attempts", "undo"):
        table.add_column(column, min_width=12)
    for step in (saga or {}).get("steps", []):
        status = step["status"]
        undo = step["compensation"]
        table.add_row(
            step["id"],
            Text(f"{MARKS.get(status, ' ')} {status}", style=STYLES.get(status, "")),
            step["effect"],
            str(step["attempts"] or ""),
            "" if undo is None else f"{undo['status']} ({undo['attempts']})",
        )
    lines: list[RenderableType] = [table]
    if saga is not None:
        lines.append(_headline(saga))
    lines.extend(Text(f"  {note}", style="italic") for note in notes)
    return Group(*lines)


def draw_ledger(ledger: Ledger, names: dict[str, str]) -> RenderableType:
    """Each call that the world received, with its key, how often it came, and what it did."""
    table = Table(title="The world's own ledger", title_justify="left", header_style="dim")
    for column in ("trip", "call", "key", "received", "took effect", "now"):
        table.add_column(column, no_wrap=True)
    calls: dict[tuple[str, str, str], list[Received]] = {}
    for request in ledger.requests:
        if request.saga in names and request.key is not None and not request.is_read:
            name = (request.saga, f"{request.step} {request.call}", request.key)
            calls.setdefault(name, []).append(request)
    live = {effect.resource for effect in ledger.effects if effect.undone_seq is None}
    for (saga, call, key), requests in calls.items():
        applied = sum(request.outcome == "applied" for request in requests)
        made = next((r.resource for r in requests if r.resource is not None), "")
        now = "" if not made else f"{made} {'exists' if made in live else 'is gone'}"
        table.add_row(
            names[saga], call, key[:8], f"{len(requests)}x", f"{applied}x", now or "refused"
        )
    return table


def _headline(saga: Json) -> Text:
    status = saga["status"]
    text = Text("  saga is ")
    text.append(status, style=STYLES.get(status, ""))
    failure = saga["failure"]
    if failure is not None:
        where = f" at {failure['step']}" if failure["step"] else ""
        text.append(f", because of {failure['cause']}{where}: {failure['message']}")
    return text
