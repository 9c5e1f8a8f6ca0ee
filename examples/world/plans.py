"""What a tool tells its caller later: the reports on one request, and how they are read from JSON.

A plan is part of a switch's ``do``::

    {"do": {"acts": "now", "callback": ["in_progress", {"say": "truth", "hold": "x"}]}}

``callback`` lists the reports in order; ``[]`` is never. A report is an object or the name of what
it says. Without a switch there is one report, the truth, right after the answer.
"""

from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from examples.world.fields import Fields
from examples.world.records import JsonValue, Target

Truth = Literal["truth", "succeeded", "failed", "in_progress"]
When = Literal["now", "later"]

ATTEMPTS: Final = 30
"""About a minute, with the pauses of ``caller``: long enough to start a service again."""
_ATTEMPTS_MAX: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One thing that is told; the default is the truth, at once, to the URL that was given."""

    say: Truth = "truth"
    before: bool = False
    """Sent before the answer to the request leaves, not after it."""
    delay: float = 0.0
    """Seconds to wait first."""
    hold: str | None = None
    """Then wait until this name is released."""
    to: Target = "given"
    attempts: int = ATTEMPTS
    """How often it is sent at most, where it is sent again at all."""
    changes: dict[str, JsonValue] = field(default_factory=dict)
    """Fields of the body that are put in place of, or beside, those that it would have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that is told of one request, in order."""

    acts: When = "later"
    """Whether the effect comes with the acknowledgement, or right before the first report that
    says how it ended (or, if there is none, when all is told)."""
    reports: tuple[Report, ...] = (Report(),)


DEFAULT_PLAN: Final = Plan()


def read_plan(do: Fields) -> Plan:
    """Read the fields ``acts`` and ``callback``, adding complaints to those of ``do``."""
    acts = do.text("acts", among=get_args(When))
    reports = DEFAULT_PLAN.reports
    if do.has("callback"):
        given = do.raw("callback")
        if isinstance(given, list):
            reports = tuple(_read_report(do, index, each) for index, each in enumerate(given))
        else:
            do.inner("callback").refuse("expected a list of reports, [] for never")
    late = [index for index, report in enumerate(reports) if not report.before]
    if late and any(report.before for report in reports[late[0] :]):
        do.refuse("reports before the answer come before those after it")
    return Plan(acts="now" if acts == "now" else "later", reports=reports)


def _read_report(do: Fields, index: int, given: JsonValue) -> Report:
    value: JsonValue = {"say": given} if isinstance(given, str) else given
    asked = Fields(value=value, path=f"{do.path}.callback[{index}]", complaints=do.complaints)
    say = asked.text("say", among=get_args(Truth))
    to = asked.text("to", among=get_args(Target))
    changes = asked.raw("with") or {}
    if not isinstance(changes, dict):
        asked.refuse("with must be an object: fields of the body")
        changes = {}
    report = Report(
        say=_one_of(get_args(Truth), say, "truth"),
        before=asked.flag("before", default=False),
        delay=asked.seconds("delay"),
        hold=asked.text("hold"),
        to=_one_of(get_args(Target), to, "given"),
        attempts=asked.whole("attempts", least=1, most=_ATTEMPTS_MAX) or ATTEMPTS,
        changes=changes,
    )
    asked.finish()
    return report


def _one_of[T: str](known: tuple[T, ...], given: str | None, default: T) -> T:
    """Return what was given, as one of what is known; it has been checked."""
    return next((each for each in known if each == given), default)
