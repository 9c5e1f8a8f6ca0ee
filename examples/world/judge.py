"""The judge: from the ledger alone, what did a saga engine do wrong.

Pure functions over ledger rows. The engine's word counts only for how each saga ended; that is
the ``expectations``. A sound run gives an empty list, a broken one names saga, step and key.

What is always wrong, however a saga ends:

==========================  ======================================================================
``key_with_other_bytes``    one key carried two different requests
``key_shared``              one key served two steps, or an action and a compensation
``key_with_two_effects``    two effects came about under one key
``two_live_effects``        two effects of one step are live
``undone_twice``            one effect was undone, or tried to be, under two keys
``effect_outlived_undo``    the undo came first, the effect later, and it is still there
``undo_out_of_order``       an earlier effect was undone while a later one, undone after it, stood
``callback_refused``        the caller refused what the tool reported first, or told it again
``callback_contradicted``   the caller took a report that contradicts one it had taken before
``callback_forged``         the caller took a report that came with a token of nobody's
==========================  ======================================================================

What is wrong for the way it ended:

==========================  ======================================================================
``effect_missing``          completed, and a step that acted (or the whole saga) has no live effect
``undo_in_completed``       completed, and something was undone, or asked to be
``effect_left``             compensated, and an effect is live (if partially: an undeclared one)
==========================  ======================================================================

An effect that was announced by callback counts like any other, once. A step may be undone again
under another key if its tool reported a success after it had been undone: then that was no
mistake of the engine.

"Earlier" is only said of effects in a sure order: the later step was first asked for after the
earlier effect was there. Steps side by side may be undone in either order.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, assert_never, override

from examples.world.records import Callback, Effect, Ledger, Received, Saying

type Expectation = Literal["completed", "compensated", "partially_compensated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One thing that must not be; ``rule`` is stable, ``message`` is for people."""

    rule: str
    saga: str | None
    step: str | None
    key: str | None
    message: str

    @override
    def __str__(self) -> str:
        """Show it in one line."""
        return f"{self.rule}: {self.message}"


@dataclass(slots=True)
class Trail:
    """What the ledger has on one saga, in order."""

    saga: str | None
    requests: list[Received] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    callbacks: list[Callback] = field(default_factory=list)


def trails(ledger: Ledger) -> dict[str | None, Trail]:
    """Sort a ledger by saga, in order of first request; ``None`` for what names no saga."""
    sorted_: dict[str | None, Trail] = {}
    for request in ledger.requests:
        sorted_.setdefault(request.saga, Trail(request.saga)).requests.append(request)
    for effect in ledger.effects:
        sorted_.setdefault(effect.saga, Trail(effect.saga)).effects.append(effect)
    for callback in ledger.callbacks:
        sorted_.setdefault(callback.saga, Trail(callback.saga)).callbacks.append(callback)
    return sorted_


def judge(
    ledger: Ledger,
    expectations: Mapping[str, Expectation],
    *,
    optional_steps: Collection[str] = (),
    residue_steps: Collection[str] = (),
) -> list[Violation]:
    """Find all that is wrong.

    Args:
        ledger: everything that was received and done.
        expectations: how each saga ended, by its id. Sagas not named are judged by what is always
            wrong.
        optional_steps: ids of steps that may end without effect in a completed saga.
        residue_steps: ids of steps whose effects may be left in a partially compensated saga,
            such as mails that were sent.
    """
    by_saga = trails(ledger)
    violations = [
        *key_violations(ledger),
        *undone_twice(ledger),
        *callback_violations(ledger),
    ]
    for trail in by_saga.values():
        violations += [*two_live_effects(trail), *outlived_undos(trail), *undo_order(trail)]
    for saga, expectation in expectations.items():
        trail = by_saga.get(saga) or Trail(saga)
        match expectation:
            case "completed":
                violations += missing_effects(trail, optional_steps=optional_steps)
                violations += undos_in_completed(trail)
            case "compensated":
                violations += effects_left(trail)
            case "partially_compensated":
                violations += effects_left(trail, residue_steps=residue_steps)
            case _:
                assert_never(expectation)
    return violations


def key_violations(ledger: Ledger) -> Iterator[Violation]:
    """Check that each key means one thing: the same bytes, one call, one effect."""
    for key, requests in _grouped(ledger.requests, lambda each: None if each.is_read else each.key):
        first = requests[0]
        for other in requests[1:]:
            if _bytes_of(other) != _bytes_of(first):
                shown = f"#{first.seq} {_shown(first)} and #{other.seq} {_shown(other)}"
                yield _about(other, "key_with_other_bytes", f"key {key!r} carried {shown}")
                break
        named = [each for each in requests if each.saga is not None]
        for other in named[1:]:
            if _call_of(other) != _call_of(named[0]):
                shown = f"{' '.join(_call_of(named[0]))} and {' '.join(_call_of(other))}"
                yield _about(other, "key_shared", f"key {key!r} served {shown}")
                break
    for key, effects in _grouped(ledger.effects, lambda each: each.key):
        if len(effects) > 1:
            message = f"{_names(effects)} came about under the one key {key!r}"
            yield _about(effects[1], "key_with_two_effects", message)


def undone_twice(ledger: Ledger) -> Iterator[Violation]:
    """Check that each effect was undone under one key only, however often that was sent.

    Another key is right after the tool reported, late, that the effect exists.
    """
    effects = {effect.resource: effect for effect in ledger.effects}
    undos = [request for request in ledger.requests if request.is_undo]
    successes = [
        callback
        for callback in ledger.callbacks
        if callback.outcome == "succeeded" and callback.is_accepted
    ]
    for resource, requests in _grouped(undos, lambda each: each.resource):
        keys = list(dict.fromkeys(repr(request.key) for request in requests))
        firsts = [next(each for each in requests if repr(each.key) == key) for key in keys]
        effect = effects.get(resource)
        were_asked_for = effect is not None and all(
            any(
                callback.key == effect.key and earlier.seq < callback.seq < later.seq
                for callback in successes
            )
            for earlier, later in pairwise(firsts)
        )
        if len(keys) > 1 and resource in effects and not were_asked_for:
            message = f"the undo of {resource} was sent under the keys {', '.join(keys)}"
            yield _about(effects[resource], "undone_twice", message)


def callback_violations(ledger: Ledger) -> Iterator[Violation]:
    """Check that the caller takes each report for what it is worth.

    What a switch has changed is not judged.
    """
    for _, callbacks in _grouped(ledger.callbacks, lambda each: each.token_sha256):
        taken: Saying | None = None
        may_be_known: set[Saying] = set()
        for callback in callbacks:
            if callback.sent_to == "forged" and callback.is_accepted:
                yield _about(callback, "callback_forged", f"{_told(callback)}, with a forged token")
            if callback.sent_to != "given" or callback.is_changed:
                continue
            if callback.is_refused and may_be_known <= {callback.outcome}:
                yield _about(callback, "callback_refused", _told(callback))
            if callback.outcome == "in_progress":
                continue
            if callback.is_accepted and taken not in {None, callback.outcome}:
                message = f"{_told(callback)}, after it had taken that it {taken}"
                yield _about(callback, "callback_contradicted", message)
            if callback.is_accepted and taken is None:
                taken = callback.outcome
            if not callback.is_refused:
                may_be_known.add(callback.outcome)


def two_live_effects(trail: Trail) -> Iterator[Violation]:
    """Check that a step has one live effect at most."""
    if trail.saga is None:
        return
    live = (effect for effect in trail.effects if effect.live)
    for _, effects in _grouped(live, lambda each: each.step):
        if len(effects) > 1:
            message = f"{_names(effects)} are live at once"
            yield _about(effects[1], "two_live_effects", message)


def outlived_undos(trail: Trail) -> Iterator[Violation]:
    """Check that no effect stands that came about after its step was undone."""
    early: dict[str | None, Received] = {
        request.step: request
        for request in reversed(trail.requests)
        if request.is_undo and request.step is not None and request.resource is None
    }
    for effect in trail.effects:
        undo = early.get(effect.step)
        if undo is not None and effect.live and undo.seq < effect.created_seq:
            message = (
                f"{effect.resource} came about at #{effect.created_seq}, after its undo"
                f" #{undo.seq} {_shown(undo)} under key {undo.key!r}, and is still live"
            )
            yield _about(effect, "effect_outlived_undo", message)


def undo_order(trail: Trail) -> Iterator[Violation]:
    """Check that effects in a sure order were undone in the reverse of it."""
    first_asked: dict[tuple[str | None, str | None], int] = {}
    for request in trail.requests:
        if not request.is_read and not request.is_undo:
            first_asked.setdefault((request.step, request.key), request.seq)
    undone = [(effect, effect.undone_seq) for effect in trail.effects if effect.undone_seq]
    for earlier, undone_first in undone:
        for later, undone_last in undone:
            asked = first_asked.get((later.step, later.key), later.request_seq)
            was_sure = earlier.created_seq < asked
            if was_sure and later.created_seq < undone_first < undone_last:
                message = (
                    f"{earlier.resource} was undone (#{undone_first}) before {later.resource}"
                    f" (#{undone_last}), which step {later.step!r} made after it"
                )
                yield _about(earlier, "undo_out_of_order", message)
                break


def missing_effects(trail: Trail, *, optional_steps: Collection[str] = ()) -> Iterator[Violation]:
    """Check that each step that acted in a completed saga has its effect."""
    if not trail.requests:
        message = "completed, but the world never heard of it"
        yield _violation("effect_missing", trail.saga, None, None, message)
    live = {effect.step for effect in trail.effects if effect.live}
    acted = (each for each in trail.requests if not each.is_read and not each.is_undo)
    for step, requests in _grouped(acted, lambda each: each.step):
        if step not in live and step not in optional_steps:
            message = f"completed, but none of {len(requests)} request(s) left a live effect"
            yield _about(requests[-1], "effect_missing", message)


def undos_in_completed(trail: Trail) -> Iterator[Violation]:
    """Check that nothing of a completed saga was undone, or asked to be."""
    undone = [effect for effect in trail.effects if not effect.live]
    for effect in undone:
        message = f"completed, but {effect.resource} was undone under key {effect.undone_by_key!r}"
        yield _about(effect, "undo_in_completed", message)
    told = {effect.resource for effect in undone}
    asked = (each for each in trail.requests if each.is_undo and each.resource not in told)
    for _, requests in _grouped(asked, lambda each: repr((each.step, each.key))):
        message = f"completed, but an undo was asked for: #{requests[0].seq} {_shown(requests[0])}"
        yield _about(requests[0], "undo_in_completed", message)


def effects_left(trail: Trail, *, residue_steps: Collection[str] = ()) -> Iterator[Violation]:
    """Check that nothing of a compensated saga is left but what is declared."""
    for effect in trail.effects:
        if effect.live and effect.step not in residue_steps:
            message = f"compensated, but {effect.resource} is live"
            yield _about(effect, "effect_left", message)


def _grouped[T](rows: Iterable[T], name: Callable[[T], str | None]) -> list[tuple[str, list[T]]]:
    """Group rows by name, in order of first appearance, leaving out those without one."""
    groups: defaultdict[str, list[T]] = defaultdict(list)
    for row in rows:
        found = name(row)
        if found is not None:
            groups[found].append(row)
    return list(groups.items())


def _bytes_of(request: Received) -> tuple[str, str, str | None]:
    return request.method, request.path, request.body_sha256


def _call_of(request: Received) -> tuple[str, str, str]:
    return str(request.saga), str(request.step), str(request.call)


def _shown(request: Received) -> str:
    return f"{request.method} {request.path} {request.body_text[:200]}".strip()


def _told(callback: Callback) -> str:
    return (
        f"the caller answered {callback.status} to #{callback.seq}, report {callback.report}"
        f" on #{callback.request_seq}, which said {callback.outcome}"
    )


def _names(effects: Iterable[Effect]) -> str:
    return " and ".join(effect.resource for effect in effects)


def _about(row: Received | Effect | Callback, rule: str, message: str) -> Violation:
    return _violation(rule, row.saga, row.step, row.key, message)


def _violation(
    rule: str, saga: str | None, step: str | None, key: str | None, message: str
) -> Violation:
    where = f"saga {saga!r}" if step is None else f"saga {saga!r}, step {step!r}, key {key!r}"
    return Violation(rule=rule, saga=saga, step=step, key=key, message=f"{where}: {message}")
