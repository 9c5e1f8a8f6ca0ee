"""Ledgers written by hand, for the tests of the judge."""

import dataclasses
from typing import Any, Self

from examples.world import Callback, Effect, Expectation, Ledger, Received, judge
from examples.world.records import Outcome, Saying

STEPS = ("flight", "hotel", "charge")
COMPLETED: dict[str, Expectation] = {"s1": "completed"}
COMPENSATED: dict[str, Expectation] = {"s1": "compensated"}


class Story:
    """Writes the ledger of one saga, call by call, as a sound engine and a sound tool would.

    The key of a step's action is the name of the step, that of its compensation "undo-" and that.
    """

    def __init__(self) -> None:
        """Begin with an empty ledger."""
        self.requests: list[Received] = []
        self.effects: list[Effect] = []
        self.callbacks: list[Callback] = []
        self._seq = 0

    @property
    def ledger(self) -> Ledger:
        """What has been written."""
        return Ledger(
            requests=tuple(self.requests),
            effects=tuple(self.effects),
            callbacks=tuple(self.callbacks),
        )

    def seq(self) -> int:
        """Number the next thing."""
        self._seq += 1
        return self._seq

    def request(
        self,
        step: str,
        call: str,
        *,
        key: str,
        outcome: Outcome | None,
        method: str = "POST",
        resource: str | None = None,
        body: str = "",
    ) -> Received:
        """Receive a request."""
        row = Received(
            seq=self.seq(),
            at="2030-01-01T00:00:00Z",
            method=method,
            path=f"/{step}",
            key=key,
            saga="s1",
            step=step,
            call=call,
            body_sha256=body,
            outcome=outcome,
            outcome_seq=self.seq(),
            resource=resource,
        )
        self.requests.append(row)
        return row

    def act(self, *steps: str, key: str | None = None, body: str = "") -> Self:
        """Receive the action of each step, and have its effect."""
        for step in steps:
            resource = f"{step}-{len(self.effects)}"
            row = self.request(
                step, "action", key=key or step, outcome="applied", resource=resource, body=body
            )
            self.happen(row, resource)
        return self

    def happen(self, row: Received, resource: str) -> Self:
        """Let a request have its effect now."""
        effect = Effect(
            resource=resource,
            kind=str(row.step),
            request_seq=row.seq,
            created_seq=self.seq(),
            key=row.key,
            saga=row.saga,
            step=row.step,
        )
        self.effects.append(effect)
        return self

    def report(self, step: str, outcome: Saying, status: int | None, **options: Any) -> Self:
        """Report on the action of a step, and be answered."""
        token = f"forged {step}" if options.get("sent_to") == "forged" else step
        row = next(each for each in self.requests if each.step == step)
        callback = Callback(
            seq=self.seq(),
            at="2030-01-01T00:00:00Z",
            request_seq=row.seq,
            report=len(self.callbacks),
            attempt=1,
            outcome=outcome,
            token_sha256=token,
            body_text="",
            answered_seq=self.seq(),
            status=status,
            key=row.key,
            saga="s1",
            step=step,
            call="action",
            **options,
        )
        self.callbacks.append(callback)
        return self

    def replay(self, step: str) -> Self:
        """Receive the action once more, without another effect."""
        self.request(step, "action", key=step, outcome="replayed")
        return self

    def refuse(self, step: str) -> Self:
        """Receive the action and refuse it."""
        self.request(step, "action", key=step, outcome="refused")
        return self

    def undo(self, *steps: str, key: str | None = None) -> Self:
        """Receive the compensation of each step, and undo its effect if there is a live one."""
        for step in steps:
            of_step = [n for n, each in enumerate(self.effects) if each.step == step]
            live = [n for n in of_step if self.effects[n].live]
            name = key or f"undo-{step}"
            resource = self.effects[(live or of_step)[-1]].resource if of_step else None
            outcome: Outcome = "applied" if live else "refused" if of_step else "none"
            self.request(step, "compensation", key=name, outcome=outcome, resource=resource)
            if live:
                self.effects[live[-1]] = dataclasses.replace(
                    self.effects[live[-1]], undone_seq=self.seq(), undone_by_key=name
                )
        return self


def rules(
    story: Story, expectations: dict[str, Expectation] | None = None, **options: frozenset[str]
) -> list[str]:
    """The rules that the judge sees broken."""
    found = judge(story.ledger, expectations or {}, **options)
    return [violation.rule for violation in found]
