"""What can be done to a request: the value of a switch's ``do``, and how it is read from JSON.

A fault has a part before the effect (``late_effect``, ``delay``, hold), a part after it (hold,
``late``), and an *ending* that replaces or spoils the tool's own answer. At most one ending; the
rest combines freely. What is told later, if anything, is its *plan* (``plans``).

Whether the tool is reached matters. ``decline`` is a refusal by the tool itself, so a key whose
effect exists already is replayed instead. An ending with ``effect: false`` plays whatever stands
in front of the tool (gateway, network): the tool, its keys included, is not asked.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, assert_never, get_args

from examples.world.fields import FOREVER_SECONDS, Fields
from examples.world.plans import DEFAULT_PLAN, Plan, read_plan
from examples.world.records import JsonValue

type Where = Literal["before", "after", "callback"]

Absurdity = Literal[
    "html",
    "bad_json",
    "bad_utf8",
    "nan",
    "deep",
    "nul",
    "huge",
    "empty",
    "redirect",
    "truncated",
    "gzip_bomb",
    "wrong_chunks",
]

Middle = Literal["headers", "body"]

_PLACES: Final = ("before", "after")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Wait until somebody releases ``name``: before or after the effect, or before a callback."""

    where: Where
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decline:
    """The tool refuses, unless it knows the key: then it replays."""

    status: int
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """A 5xx, before or after the effect."""

    status: int
    effect: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """The connection is closed without an answer, before or after the effect."""

    effect: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """Nothing is answered for a time, then the connection is closed."""

    seconds: float
    effect: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Nonsense:
    """An answer that no client can use."""

    kind: Absurdity
    status: int | None
    effect: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Custom:
    """An answer made to order. A string body is sent as it is, anything else as JSON."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: JsonValue = None
    effect: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Drip:
    """The tool's own answer, a byte at a time."""

    seconds: float
    """Between two bytes of the body."""
    effect: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The tool's own answer, up to the middle of its headers or its body."""

    where: Middle
    effect: bool = True


type Ending = Decline | Fail | Drop | Hang | Nonsense | Custom | Drip | Cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """All that is to be done to one request; the default does nothing. Times in seconds."""

    late_effect: float = 0.0
    """Stuck in the network before the tool: its key is not yet in use there."""
    delay: float = 0.0
    """Slow in the tool before the effect: another request with its key is told ``in_progress``."""
    hold: Hold | None = None
    late: float = 0.0
    ending: Ending | None = None
    plan: Plan = DEFAULT_PLAN
    """What is told of it later, if its caller wants to be called back."""
    text: str | None = None
    """The ``do`` as JSON, for the ledger."""

    @property
    def reaches_tool(self) -> bool:
        """Whether the tool gets to see the request."""
        return self.ending is None or isinstance(self.ending, Decline) or self.ending.effect

    def status_on_wire(self, own: int) -> int | None:
        """Return the status that is sent where the tool says ``own``; ``None`` if none is."""
        match self.ending:
            case None | Decline() | Drip() | Cut(where="body"):
                return own
            case Fail(status=status) | Custom(status=status):
                return status
            case Drop() | Hang() | Cut():
                return None
            case Nonsense(kind=kind, status=status):
                return status or (302 if kind == "redirect" else 200)
            case _:
                assert_never(self.ending)


NO_FAULT: Final = Fault()


def read_fault(do: Fields, *, text: str) -> Fault:
    """Read a switch's ``do``, adding complaints to those of ``do``."""
    before = len(do.complaints)
    hold = None
    if do.has("hold"):
        where, name = do.text("hold", among=_PLACES), do.text("name")
        if name is None:
            do.refuse("a hold needs a name to be released by")
        else:
            hold = Hold(where="before" if where == "before" else "after", name=name)
    endings = [
        ending
        for name, read in _ENDINGS.items()
        if do.has(name) and (ending := read(do)) is not None
    ]
    if len(endings) > 1:
        do.refuse(f"only one of {', '.join(_ENDINGS)} can end a request")
    fault = Fault(
        late_effect=do.seconds("late_effect"),
        delay=do.seconds("delay"),
        hold=hold,
        late=do.seconds("late"),
        ending=endings[0] if endings else None,
        plan=read_plan(do),
        text=text,
    )
    do.finish()
    is_empty = fault == Fault(text=text) and len(do.complaints) == before
    if is_empty and isinstance(do.value, dict) and not do.has("callback"):
        names = "hold, late_effect, delay, late, acts, callback"
        do.refuse(f"nothing to do; give {names}, {', '.join(_ENDINGS)}")
    return fault


def fault_in(text: str | None) -> Fault:
    """Read a fault back from its text in the ledger."""
    if text is None:
        return NO_FAULT
    return read_fault(Fields(value=json.loads(text), path="$", complaints=[]), text=text)


def _decline(do: Fields) -> Decline | None:
    status = do.whole("decline", least=400, most=599)
    code = do.text("code") or "declined"
    return None if status is None else Decline(status=status, code=code)


def _fail(do: Fields) -> Fail | None:
    status = do.whole("fail", least=500, most=599)
    effect = do.flag("effect", default=False)
    return None if status is None else Fail(status=status, effect=effect)


def _drop(do: Fields) -> Drop | None:
    where = do.text("drop", among=_PLACES)
    return None if where is None else Drop(effect=where == "after")


def _hang(do: Fields) -> Hang | None:
    seconds = do.number("hang", most=FOREVER_SECONDS)
    effect = do.flag("effect", default=False)
    return None if seconds is None else Hang(seconds=seconds, effect=effect)


def _drip(do: Fields) -> Drip | None:
    seconds = do.number("drip", most=FOREVER_SECONDS)
    return None if seconds is None else Drip(seconds=seconds)


def _cut(do: Fields) -> Cut | None:
    where = do.text("cut", among=get_args(Middle))
    return None if where is None else Cut(where="body" if where == "body" else "headers")


def _nonsense(do: Fields) -> Nonsense | None:
    kinds: tuple[Absurdity, ...] = get_args(Absurdity)
    given = do.text("nonsense", among=kinds)
    status = do.whole("status", least=200, most=599)
    effect = do.flag("effect", default=True)
    for kind in kinds:
        if kind == given:
            return Nonsense(kind=kind, status=status, effect=effect)
    return None


def _answer(do: Fields) -> Custom | None:
    before = len(do.complaints)
    answer = do.inner("answer")
    effect = do.flag("effect", default=False)
    status = answer.whole("status", least=200, most=599)
    if status is None and len(do.complaints) == before:
        answer.refuse("needs a status")
    headers = answer.raw("headers") or {}
    if not isinstance(headers, dict) or not all(_is_header(*item) for item in headers.items()):
        answer.refuse("headers must be an object of printable ASCII strings")
        headers = {}
    body = answer.raw("body")
    answer.finish()
    if len(do.complaints) > before or status is None:
        return None
    sent = {name: str(value) for name, value in headers.items()}
    return Custom(status=status, headers=sent, body=body, effect=effect)


def _is_header(name: str, value: JsonValue) -> bool:
    return (
        isinstance(value, str)
        and name.isascii()
        and name.replace("-", "").replace("_", "").isalnum()
        and value.isascii()
        and value.isprintable()
    )


_ENDINGS: Final = {
    "decline": _decline,
    "fail": _fail,
    "drop": _drop,
    "hang": _hang,
    "nonsense": _nonsense,
    "answer": _answer,
    "drip": _drip,
    "cut": _cut,
}
