"""The switches: which fault is ordered for which request, and what each tool is like.

A list holds two kinds of switch. A *rule* orders a fault for the requests that it matches::

    {"match": {"method": "POST", "path": "/charges"}, "times": 1, "do": {"drop": "after"}}

A *mode* says what a tool is like, from now on::

    {"resource": "flights", "honours_keys": false}

For each request the rules are asked in order, and the first that fires decides. A rule counts
the requests that it matches (``seen``): it lets the first ``skip`` of them pass, then fires with
``chance``, at most ``times`` times (``hits``). Rules that were not asked do not count.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from examples.world.catalogue import KINDS, REFUNDS
from examples.world.faults import NO_FAULT, Fault, read_fault
from examples.world.fields import Complaint, Fields
from examples.world.records import JsonValue

RESOURCES: Final = (*KINDS, REFUNDS)
CALLS: Final = ("action", "compensation", "verify")
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
NOT_FOUND: Final = 404
GONE: Final = 410


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Which requests a rule is for; what is ``None`` matches all."""

    method: str | None = None
    path: str = "/"
    """How the path begins."""
    saga: str | None = None
    step: str | None = None
    call: str | None = None

    def covers(self, request: "Match") -> bool:
        """Tell whether it is for this request, described in the same terms."""
        return (
            request.path.startswith(self.path)
            and self.method in {None, request.method}
            and self.saga in {None, request.saga}
            and self.step in {None, request.step}
            and self.call in {None, request.call}
        )


@dataclass(slots=True, kw_only=True)
class Rule:
    """A rule and its counts."""

    given: JsonValue
    match: Match
    times: int | None
    skip: int
    chance: float
    dice: random.Random
    fault: Fault
    seen: int = 0
    hits: int = 0

    def fires(self, request: Match) -> bool:
        """Count the request if it matches, and decide whether it is hit."""
        if not self.match.covers(request):
            return False
        self.seen += 1
        if self.seen <= self.skip or (self.times is not None and self.hits >= self.times):
            return False
        if self.chance < 1 and self.dice.random() >= self.chance:
            return False
        self.hits += 1
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """What the tool behind a resource is like; the default is well-behaved.

    Fees and mails are not: they honour no keys unless a mode says so.
    """

    honours_keys: bool = True
    """False plays a tool without idempotency: every request has its effect."""
    caches_errors: bool = False
    """True stores refusals and ordered failures under the key too, as Stripe does, and replays
    them: https://docs.stripe.com/api/idempotent_requests."""
    deleted_again: int = NOT_FOUND
    """What deleting something a second time answers: 404 or 410."""
    barrier: bool = True
    """Of charges: whether a key refunded before its charge came bars the charge for good."""
    shown_after_seconds: float = 0.0
    """How long a search leaves out what was made, as an eventually consistent one does."""
    shown_after_queries: int = 0
    """How often the same search is asked before it shows what was made."""
    calls_back: bool = True
    """False answers at once, also to who names a URL to call back."""
    calls_back_again: bool = False
    """True reports once more when a request is sent again under a key that was reported on."""


class InvalidSwitchesError(ValueError):
    """The list of switches is not as it should be; ``complaints`` says what, each with a path."""

    def __init__(self, complaints: Sequence[Complaint]) -> None:
        """Keep all complaints and show them all."""
        self.complaints = tuple(complaints)
        super().__init__("; ".join(f"{each.path}: {each.message}" for each in complaints))


@dataclass(slots=True, kw_only=True)
class Switches:
    """The switches as they are set now."""

    rules: list[Rule] = field(default_factory=list)
    modes: Mapping[str, Mode] = field(default_factory=dict)
    given: list[JsonValue] = field(default_factory=list)

    def replace(self, document: JsonValue) -> None:
        """Put this list in place of all that is set; counts begin anew.

        Raises:
            InvalidSwitchesError: it is not as it should be; then nothing is changed.
        """
        complaints: list[Complaint] = []
        if not isinstance(document, list):
            raise InvalidSwitchesError([Complaint(path="$", message="expected a list of switches")])
        rules: list[Rule] = []
        modes: dict[str, Mode] = {}
        for index, given in enumerate(document):
            switch = Fields(value=given, path=f"$[{index}]", complaints=complaints)
            if not isinstance(given, dict):
                continue  # which is complained about already
            if "resource" in given:
                resource = switch.text("resource", among=RESOURCES)
                modes[resource or ""] = _read_mode(switch, resource or "")
            else:
                rules.append(_read_rule(switch))
        if complaints:
            raise InvalidSwitchesError(complaints)
        self.rules, self.modes, self.given = rules, modes, document

    def fault_for(self, request: Match) -> Fault:
        """Ask the rules in order what is to be done to a request, and count it."""
        for rule in self.rules:
            if rule.fires(request):
                return rule.fault
        return NO_FAULT

    def mode_of(self, resource: str) -> Mode:
        """Say what the tool behind a resource is like."""
        return self.modes.get(resource) or Mode(honours_keys=_honours_keys(resource))

    def to_json(self) -> list[JsonValue]:
        """Return the list as it was given, rules with ``seen`` and ``hits``."""
        counts = iter(self.rules)
        shown: list[JsonValue] = []
        for given in self.given:
            if isinstance(given, dict) and "resource" not in given:
                rule = next(counts)
                shown.append({**given, "seen": rule.seen, "hits": rule.hits})
            else:
                shown.append(given)
        return shown


def _honours_keys(resource: str) -> bool:
    return resource not in KINDS or KINDS[resource].honours_keys


def _read_mode(switch: Fields, resource: str) -> Mode:
    again = switch.whole("deleted_again")
    if again not in {None, NOT_FOUND, GONE}:
        switch.refuse("deleted_again must be 404 or 410")
    mode = Mode(
        honours_keys=switch.flag("honours_keys", default=_honours_keys(resource)),
        caches_errors=switch.flag("caches_errors", default=False),
        deleted_again=again or NOT_FOUND,
        barrier=switch.flag("barrier", default=True),
        shown_after_seconds=switch.seconds("shown_after_seconds"),
        shown_after_queries=switch.whole("shown_after_queries") or 0,
        calls_back=switch.flag("calls_back", default=True),
        calls_back_again=switch.flag("calls_back_again", default=False),
    )
    switch.finish()
    return mode


def _read_rule(switch: Fields) -> Rule:
    match = switch.inner("match")
    chance = switch.number("chance", most=1)
    # A repeated run must meet the same faults, so each rule has dice of its own, with a seed.
    dice = random.Random(switch.whole("seed") or 0)  # noqa: S311 - nothing here is a secret
    do = switch.inner("do")
    rule = Rule(
        given=switch.value,
        match=Match(
            method=match.text("method", among=METHODS),
            path=match.text("path") or "/",
            saga=match.text("saga"),
            step=match.text("step"),
            call=match.text("call", among=CALLS),
        ),
        times=switch.whole("times"),
        skip=switch.whole("skip") or 0,
        chance=1 if chance is None else chance,
        dice=dice,
        fault=read_fault(do, text=json.dumps(do.value)),
    )
    match.finish()
    switch.finish()
    return rule
