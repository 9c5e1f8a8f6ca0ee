"""Counting: what the ledger shows of each saga, for people and for scripts."""

from collections import Counter

from examples.world.judge import Trail, Violation, judge, trails
from examples.world.records import JsonValue, Ledger

_DUPLICATES = frozenset({"key_with_two_effects", "two_live_effects"})


def summarize(ledger: Ledger) -> dict[str, JsonValue]:
    """Count per saga.

    Returns:
        Totals ``requests``, ``effects_live`` and ``effects_total``; ``sagas``, an object of
        summaries by saga id: ``calls`` (step -> call -> count), ``effects_live``,
        ``effects_total``, ``undo_order`` (steps, first undone first), ``callbacks`` (step -> what
        was reported and the status answered, in order: ``succeeded 200``, or ``failed None`` where
        nobody answered), ``duplicates`` and ``violations``; and ``unattributed``, violations of
        what names no saga. A violation has ``rule``, ``step``, ``key`` and ``message``.
    """
    violations = judge(ledger, {})
    return {
        "requests": len(ledger.requests),
        "effects_live": sum(effect.live for effect in ledger.effects),
        "effects_total": len(ledger.effects),
        "sagas": {
            saga: _summary(trail, [each for each in violations if each.saga == saga])
            for saga, trail in trails(ledger).items()
            if saga is not None
        },
        "unattributed": [_shown(each) for each in violations if each.saga is None],
    }


def _summary(trail: Trail, violations: list[Violation]) -> JsonValue:
    counts = Counter((request.step or "", request.call or "") for request in trail.requests)
    calls: dict[str, JsonValue] = {}
    for step, _ in counts:
        of_step: dict[str, JsonValue] = {
            call: count for (name, call), count in counts.items() if name == step
        }
        calls[step] = of_step
    callbacks: dict[str, JsonValue] = {
        step: [
            f"{each.outcome} {each.status}" for each in trail.callbacks if (each.step or "") == step
        ]
        for step in dict.fromkeys(callback.step or "" for callback in trail.callbacks)
    }
    undone = sorted(
        (effect.undone_seq, effect.step or "") for effect in trail.effects if effect.undone_seq
    )
    return {
        "calls": calls,
        "effects_live": sum(effect.live for effect in trail.effects),
        "effects_total": len(trail.effects),
        "undo_order": [step for _, step in undone],
        "callbacks": callbacks,
        "duplicates": [_shown(each) for each in violations if each.rule in _DUPLICATES],
        "violations": [_shown(each) for each in violations if each.rule not in _DUPLICATES],
    }


def _shown(violation: Violation) -> JsonValue:
    return {
        "rule": violation.rule,
        "step": violation.step,
        "key": violation.key,
        "message": violation.message,
    }
