"""What a tool's answer means: every row of the table, for both directions.

The action's table is written out for four situations: no earlier attempt is uncertain, or one is;
and the tool honours keys, or does not.
"""

import datetime as dt
from collections.abc import Iterable

import pytest

from app.core.definition import Call
from app.core.json_value import JsonValue
from app.core.observation import (
    Answered,
    BrokenOffReason,
    Claim,
    Claimed,
    NotSentReason,
    Observation,
)
from app.core.outcome import (
    Acknowledged,
    AlreadyGone,
    Refused,
    Succeeded,
    TryAgain,
    Unclear,
    Verdict,
    classify_action,
    classify_compensation,
    is_refusal,
    is_success,
    is_unreadable_success,
)
from app.core.saga import Code
from tests.core.builders import (
    CALLS_BACK,
    COMPENSATION,
    T0,
    a_call,
    answered,
    broken_off,
    not_sent,
    seconds,
)

SUCCESSES = [200, 201, 202, 203, 204, 206, 207, 226, 299]
UNCLEAR = [100, 103, 199, 300, 301, 302, 303, 304, 307, 308, 399, 408, *range(500, 600)]
GATEWAY = [401, 403, 404, 413]
PLAIN = [
    status for status in range(400, 500) if status not in {*GATEWAY, 408, 409, 425, 429}
]  # 400, 402, 405, 406, 407, 410, 411, 412, 414 to 424, 426 to 428, 430 to 499

KEYED = a_call()
BARE = a_call(idempotent=False)
PUT = a_call(idempotent=False, method="PUT")
CALLS = {"keyed": KEYED, "bare": BARE, "put": PUT}


def of_action(observation: Observation, *, call: Call = KEYED, uncertain: bool = False) -> Verdict:
    """What it means for an action."""
    return classify_action(call, observation, uncertain=uncertain, now=T0)


def of_compensation(observation: Observation, *, undo_by: str = "output") -> Verdict:
    """What it means for a compensation: a DELETE, or a POST if it undoes by the action's key."""
    return classify_compensation(a_call(COMPENSATION, undo_by=undo_by), observation, now=T0)


def kind(verdict: Verdict) -> str:
    """The verdict in a few words."""
    match verdict:
        case Succeeded():
            return "done"
        case AlreadyGone():
            return "gone"
        case Refused(proves_none=proves_none):
            return "refused, none" if proves_none else "refused, unchanged"
        case TryAgain(counts=counts, still_working=still_working):
            counted = "counted" if counts else "free"
            return f"again, {counted}{', working' if still_working else ''}"
        case Unclear():
            return "unknown"
        case Acknowledged():
            return "acknowledged"


def problem_of(verdict: Verdict) -> str:
    """The message of a verdict that has one."""
    assert not isinstance(verdict, Succeeded | Acknowledged)
    return verdict.problem.message


def means(statuses: Iterable[int], call: Call, *, uncertain: bool) -> dict[int, str]:
    """What a plain answer of each status means for an action."""
    return {
        status: kind(of_action(answered(status, {"n": 1}), call=call, uncertain=uncertain))
        for status in statuses
    }


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("uncertain", [False, True])
class TestEveryAction:
    """Rows that no earlier attempt and no property of the tool changes."""

    def test_any_2xx_is_success(self, *, call: Call, uncertain: bool) -> None:
        """Any 2xx means that the effect exists, and the body is the output, whatever it says."""
        body: JsonValue = {"ok": False, "error": "failed"}

        verdicts = [
            of_action(answered(status, body), call=call, uncertain=uncertain)
            for status in SUCCESSES
        ]

        assert verdicts == [Succeeded(output=body)] * len(SUCCESSES)

    def test_an_empty_body_is_null(self, *, call: Call, uncertain: bool) -> None:
        """An empty success body is the output null."""
        verdict = of_action(answered(204), call=call, uncertain=uncertain)

        assert verdict == Succeeded(output=None)

    def test_an_unreadable_success_is_unknown(self, *, call: Call, uncertain: bool) -> None:
        """A success whose body cannot be read leaves the effect unknown."""
        kinds = {
            kind(of_action(answered(status, "<", readable=False), call=call, uncertain=uncertain))
            for status in SUCCESSES
        }

        assert kinds == {"unknown"}

    def test_redirects_and_server_errors_are_unknown(self, *, call: Call, uncertain: bool) -> None:
        """1xx, 3xx, 408 and every 5xx leave the effect unknown, also 503."""
        assert means(UNCLEAR, call, uncertain=uncertain) == dict.fromkeys(UNCLEAR, "unknown")

    @pytest.mark.parametrize("reason", BrokenOffReason)
    def test_a_broken_exchange_is_unknown(
        self, *, call: Call, uncertain: bool, reason: BrokenOffReason
    ) -> None:
        """An exchange that broke off after its first byte leaves the effect unknown."""
        verdict = of_action(broken_off(reason), call=call, uncertain=uncertain)

        assert kind(verdict) == "unknown"

    @pytest.mark.parametrize(
        ("reason", "expected"),
        [
            (NotSentReason.UNREACHABLE, "again, counted"),
            (NotSentReason.EXPIRED, "again, free"),
            (NotSentReason.FORBIDDEN, "refused, unchanged"),
        ],
    )
    def test_what_was_not_sent_had_no_effect(
        self, *, call: Call, uncertain: bool, reason: NotSentReason, expected: str
    ) -> None:
        """Nothing left: tried again, unless our own transport will never send it."""
        verdict = of_action(not_sent(reason), call=call, uncertain=uncertain)

        assert kind(verdict) == expected

    @pytest.mark.parametrize(
        ("status", "expected"), [(425, "again, free, working"), (429, "again, free")]
    )
    def test_busy_tools_are_asked_again(
        self, *, call: Call, uncertain: bool, status: int, expected: str
    ) -> None:
        """425 (still working on it) and 429 do not count, also without Retry-After."""
        verdict = of_action(answered(status), call=call, uncertain=uncertain)

        assert kind(verdict) == expected

    def test_any_4xx_with_retry_after_waits(self, *, call: Call, uncertain: bool) -> None:
        """Any 4xx with a valid Retry-After had no effect, waits for it, and does not count."""
        for status in set(range(400, 500)) - {408, 425}:
            answer = answered(status, retry_after="7")
            verdict = of_action(answer, call=call, uncertain=uncertain)

            assert kind(verdict) == "again, free", status
            assert isinstance(verdict, TryAgain)
            assert verdict.wait == seconds(7)


@pytest.mark.parametrize(
    ("statuses", "call", "certain", "uncertain"),
    [
        (GATEWAY, KEYED, "refused, none", "again, counted"),
        (GATEWAY, BARE, "refused, none", "again, counted"),
        (GATEWAY, PUT, "refused, none", "again, counted"),
        ([409], KEYED, "refused, none", "again, counted"),
        ([409], BARE, "refused, none", "again, counted"),
        ([409], PUT, "refused, none", "again, counted"),
        (PLAIN, KEYED, "refused, none", "refused, none"),
        (PLAIN, BARE, "refused, none", "unknown"),
        (PLAIN, PUT, "refused, none", "unknown"),
    ],
)
def test_a_plain_refusal_of_an_action(
    statuses: list[int], call: Call, certain: str, uncertain: str
) -> None:
    """What a 4xx proves depends on earlier uncertain attempts and on whether keys are honoured."""
    assert means(statuses, call, uncertain=False) == dict.fromkeys(statuses, certain)
    assert means(statuses, call, uncertain=True) == dict.fromkeys(statuses, uncertain)


@pytest.mark.parametrize(
    ("status", "uncertain", "expected"),
    [
        (404, False, "refused, none"),
        (410, False, "refused, none"),
        (404, True, "done"),
        (410, True, "done"),
        (403, True, "again, counted"),
    ],
)
def test_a_delete_action_that_finds_nothing(*, status: int, uncertain: bool, expected: str) -> None:
    """A DELETE that finds nothing after an uncertain attempt has done its work."""
    verdict = of_action(answered(status), call=a_call(method="DELETE"), uncertain=uncertain)

    assert kind(verdict) == expected


@pytest.mark.parametrize("header", ["soon", "", "-1", "1.5", "Thu, 99 Jan 2026 00:00:00 GMT"])
def test_a_nonsensical_retry_after_is_ignored(header: str) -> None:
    """A 4xx with a Retry-After that says nothing is a plain refusal."""
    verdict = of_action(answered(400, retry_after=header))

    assert kind(verdict) == "refused, none"


RETRY_AFTER = [
    ("0", seconds(0)),
    ("7", seconds(7)),
    (" 7 ", seconds(7)),
    ("3600", dt.timedelta(hours=1)),
    ("3601", dt.timedelta(hours=1)),
    ("9" * 40, dt.timedelta(hours=1)),
    ("Thu, 01 Jan 2026 12:00:30 GMT", seconds(30)),
    ("Thu, 01 Jan 2026 11:00:00 GMT", seconds(0)),
    ("Fri, 02 Jan 2026 12:00:00 GMT", dt.timedelta(hours=1)),
    ("Thursday, 01-Jan-26 12:00:30 GMT", seconds(30)),
    ("Thu Jan  1 12:00:30 2026", seconds(30)),
    ("soon", None),
    (None, None),
]


@pytest.mark.parametrize(("header", "wait"), RETRY_AFTER)
@pytest.mark.parametrize("status", [302, 408, 425, 429, 500, 503, 504])
def test_every_retry_knows_how_long_to_wait(
    status: int, header: str | None, wait: dt.timedelta | None
) -> None:
    """Whatever the status, seconds and dates in Retry-After are understood, capped at an hour."""
    answer = answered(status, retry_after=header)

    for verdict in (of_action(answer), of_compensation(answer)):
        assert isinstance(verdict, TryAgain | Unclear)
        assert verdict.wait == wait


@pytest.mark.parametrize("status", [401, 404, 409, 413, 423])
def test_a_refusal_with_retry_after_waits_for_it(status: int) -> None:
    """A 4xx that names a time is asked again then, also for a compensation and after a doubt."""
    answer = answered(status, retry_after="5")

    after_doubt = of_action(answer, uncertain=True)
    undo = of_compensation(answer, undo_by="key")

    assert (kind(after_doubt), kind(undo)) == ("again, free", "again, free")


class TestCompensation:
    """The same table, going back."""

    def test_any_2xx_has_undone_it(self) -> None:
        """Any readable 2xx means that it is undone."""
        kinds = {kind(of_compensation(answered(status, {"ok": False}))) for status in SUCCESSES}

        assert kinds == {"done"}

    def test_an_unreadable_success_is_unknown(self) -> None:
        """A success that cannot be read is asked for again."""
        assert kind(of_compensation(answered(200, "<html>", readable=False))) == "unknown"

    @pytest.mark.parametrize(
        ("status", "undo_by", "expected"),
        [
            (410, "output", "gone"),
            (410, "key", "gone"),
            (404, "output", "gone"),
            (404, "key", "refused, none"),
        ],
    )
    def test_already_gone(self, status: int, undo_by: str, expected: str) -> None:
        """A 410, and a 404 to a DELETE alone, mean that there is nothing to undo."""
        assert kind(of_compensation(answered(status), undo_by=undo_by)) == expected

    @pytest.mark.parametrize("status", [401, 403, 409, 423])
    def test_passing_refusals_are_retried(self, status: int) -> None:
        """Credentials get rotated and locks released: such refusals are retried."""
        assert kind(of_compensation(answered(status))) == "again, counted"

    def test_other_refusals_are_final(self) -> None:
        """Any other 4xx refuses the undo: a person has to help."""
        others = set(range(400, 500)) - {401, 403, 404, 408, 409, 410, 423, 425, 429}

        kinds = {kind(of_compensation(answered(status))) for status in others}

        assert kinds == {"refused, none"}

    def test_redirects_and_server_errors_are_unknown(self) -> None:
        """1xx, 3xx, 408 and every 5xx are asked again."""
        kinds = {kind(of_compensation(answered(status))) for status in UNCLEAR}

        assert kinds == {"unknown"}

    @pytest.mark.parametrize("reason", BrokenOffReason)
    def test_a_broken_exchange_is_unknown(self, reason: BrokenOffReason) -> None:
        """An exchange that broke off is asked again."""
        assert kind(of_compensation(broken_off(reason))) == "unknown"

    @pytest.mark.parametrize(
        ("reason", "expected"),
        [
            (NotSentReason.UNREACHABLE, "again, counted"),
            (NotSentReason.EXPIRED, "again, free"),
            (NotSentReason.FORBIDDEN, "refused, unchanged"),
        ],
    )
    def test_what_was_not_sent_had_no_effect(self, reason: NotSentReason, expected: str) -> None:
        """Nothing left: the same as for an action."""
        assert kind(of_compensation(not_sent(reason))) == expected

    @pytest.mark.parametrize(
        ("status", "expected"), [(425, "again, free, working"), (429, "again, free")]
    )
    def test_busy_tools_are_asked_again(self, status: int, expected: str) -> None:
        """425 and 429 do not count."""
        assert kind(of_compensation(answered(status))) == expected


def test_every_status_has_a_verdict() -> None:
    """No status from 100 to 599 is without a meaning, in either direction and any situation."""
    for status in range(100, 600):
        for retry_after in (None, "3", "nonsense"):
            answer = answered(status, {"a": 1}, retry_after=retry_after)
            for call in CALLS.values():
                of_action(answer, call=call)
                of_action(answer, call=call, uncertain=True)
            of_compensation(answer)
            of_compensation(answer, undo_by="key")


@pytest.mark.parametrize(
    ("observation", "code", "status"),
    [
        (broken_off(BrokenOffReason.TIMED_OUT), Code.TIMED_OUT, None),
        (broken_off(BrokenOffReason.RESET), Code.UNKNOWN_OUTCOME, None),
        (not_sent(NotSentReason.UNREACHABLE), Code.UNREACHABLE, None),
        (not_sent(NotSentReason.EXPIRED), Code.EXPIRED, None),
        (not_sent(NotSentReason.FORBIDDEN), Code.INVALID_REQUEST, None),
        (answered(503), Code.UNKNOWN_OUTCOME, 503),
        (answered(429), Code.BUSY, 429),
        (answered(425), Code.BUSY, 425),
        (answered(402), Code.REFUSED, 402),
    ],
)
def test_a_problem_has_a_code_and_the_status(
    observation: Observation, code: Code, status: int | None
) -> None:
    """What went wrong is told in a stable word, with the status if there was an answer."""
    verdict = of_action(observation)

    assert not isinstance(verdict, Succeeded | Acknowledged)
    assert (verdict.problem.code, verdict.problem.http_status) == (code, status)


def test_a_problem_shows_an_excerpt_of_the_body() -> None:
    """The message of a refusal shows the start of the body, without control characters."""
    verdict = of_action(answered(402, {"error": "card\x00 declined " + "x" * 5000}))

    message = problem_of(verdict)
    assert "card" in message
    assert message.isprintable()
    assert len(message) <= 500


@pytest.mark.parametrize("body", [None, "", [], {}, 0, False, "\ud800", "a\nb", 1e308, [[[[]]]]])
def test_any_body_can_be_excerpted(body: object) -> None:
    """Whatever a tool says, the message stays printable and short."""
    answer = Answered(status=400, body=body)  # type: ignore[arg-type] # any JSON, seen as object

    message = problem_of(of_action(answer))

    assert message.isprintable()
    assert len(message) <= 500


def a_ruled(*rules: dict[str, JsonValue], idempotent: bool = True, callback: bool = False) -> Call:
    """An action whose definition says itself what some answers mean."""
    action: dict[str, JsonValue] = {"responses": list(rules)}
    return a_call(idempotent=idempotent, action=action | (CALLS_BACK if callback else {}))


OK_IS_FALSE = "${{ response.body.ok == false }}"


class TestResponses:
    """Rules of a definition go before the table."""

    @pytest.mark.parametrize(
        ("means", "expected"),
        [
            ("succeeded", "done"),
            ("refused", "refused, none"),
            ("retry", "again, counted"),
            ("unknown", "unknown"),
        ],
    )
    @pytest.mark.parametrize("status", [200, 302, 404, 409, 429, 500])
    def test_a_rule_says_what_an_answer_means(self, status: int, means: str, expected: str) -> None:
        """Whatever the table says of it."""
        call = a_ruled({"status": status, "means": means})

        assert kind(of_action(answered(status, {"a": 1}), call=call)) == expected

    def test_waiting_is_an_acknowledgement(self) -> None:
        """The outcome comes by callback."""
        call = a_ruled({"status": 303, "means": "waiting"}, callback=True)

        assert of_action(answered(303, {"job": 1}), call=call) == Acknowledged(accepted={"job": 1})

    def test_succeeded_needs_no_callback(self) -> None:
        """A tool that is done at once says so."""
        call = a_ruled({"status": 201, "means": "succeeded"}, callback=True)

        assert kind(of_action(answered(201, {"id": 1}), call=call)) == "done"
        assert kind(of_action(answered(202, {"id": 1}), call=call)) == "acknowledged"

    def test_the_first_that_fits_holds(self) -> None:
        """In the order of the document."""
        call = a_ruled(
            {"status": 200, "when": OK_IS_FALSE, "means": "refused"},
            {"status": 200, "means": "unknown"},
        )

        assert kind(of_action(answered(200, {"ok": False}), call=call)) == "refused, none"
        assert kind(of_action(answered(200, {"ok": True}), call=call)) == "unknown"

    @pytest.mark.parametrize(
        "answer",
        [
            answered(201, {"ok": False}),
            answered(200, {"ok": True}),
            answered(200, {}),
            answered(200, None),
            answered(200, [1]),
        ],
    )
    def test_what_no_rule_fits_is_left_to_the_table(self, answer: Answered) -> None:
        """Also where the answer has not what the rule speaks of."""
        call = a_ruled({"status": 200, "when": OK_IS_FALSE, "means": "refused"})

        assert kind(of_action(answer, call=call)) == "done"

    def test_a_rule_about_the_body_does_not_fit_one_that_cannot_be_read(self) -> None:
        """Nothing can be said of it."""
        call = a_ruled({"when": "${{ response.status == 200 }}", "means": "refused"})

        assert kind(of_action(answered(200, "<html>", readable=False), call=call)) == "unknown"

    def test_a_success_that_cannot_be_read_is_unknown(self) -> None:
        """Its output is needed."""
        call = a_ruled({"status": 409, "means": "succeeded"})

        assert kind(of_action(answered(409, "<html>", readable=False), call=call)) == "unknown"

    @pytest.mark.parametrize(
        ("idempotent", "expected"), [(True, "refused, none"), (False, "unknown")]
    )
    def test_a_refusal_after_an_uncertain_attempt(self, *, idempotent: bool, expected: str) -> None:
        """A tool that honours keys refuses all attempts at once; any other only this one."""
        call = a_ruled({"status": 404, "means": "refused"}, idempotent=idempotent)

        assert kind(of_action(answered(404), call=call, uncertain=True)) == expected

    @pytest.mark.parametrize("means", ["retry", "unknown"])
    def test_retry_after_is_kept(self, means: str) -> None:
        """On whatever status."""
        verdict = of_action(
            answered(200, retry_after="7"), call=a_ruled({"status": 200, "means": means})
        )

        assert isinstance(verdict, TryAgain | Unclear)
        assert verdict.wait == seconds(7)

    def test_a_compensation_has_rules_of_its_own(self) -> None:
        """A 404 to a POST that undoes may mean that it is gone."""
        rules: dict[str, JsonValue] = {"responses": [{"status": 404, "means": "succeeded"}]}
        call = a_call(COMPENSATION, undo_by="key", compensation=rules)

        assert kind(classify_compensation(call, answered(404), now=T0)) == "done"
        assert kind(classify_compensation(call, answered(422), now=T0)) == "refused, none"

    def test_late_answers_are_read_by_the_rules_too(self) -> None:
        """What proves a success, and what a refusal."""
        call = a_ruled({"status": 409, "means": "succeeded"}, {"status": 200, "means": "refused"})

        assert is_success(call, answered(409, {}))
        assert is_unreadable_success(call, answered(409, "<html>", readable=False))
        assert not is_success(call, answered(200, {}))
        assert is_refusal(call, answered(200, {}))
        assert not is_refusal(call, answered(409, {}))


class TestCallbackCompletion:
    """A 2xx that only acknowledges."""

    @pytest.mark.parametrize("status", SUCCESSES)
    def test_any_2xx_acknowledges(self, status: int) -> None:
        """Its body is what was accepted."""
        call = a_call(action=CALLS_BACK)

        assert of_action(answered(status, {"job": 1}), call=call) == Acknowledged(
            accepted={"job": 1}
        )
        assert not is_success(call, answered(status, {"job": 1}))

    def test_one_that_cannot_be_read_does_too(self) -> None:
        """Nothing of it is needed."""
        call = a_call(action=CALLS_BACK)

        verdict = of_action(answered(200, "<html>", readable=False), call=call)

        assert verdict == Acknowledged(accepted=None)
        assert not is_unreadable_success(call, answered(200, "<html>", readable=False))


class TestClaims:
    """What a function says in so many words."""

    @pytest.mark.parametrize(
        ("claim", "uncertain", "call", "expected"),
        [
            (Claim.REFUSED, False, KEYED, "refused, none"),
            (Claim.REFUSED, True, KEYED, "refused, none"),
            (Claim.REFUSED, True, BARE, "unknown"),
            (Claim.RETRY, False, KEYED, "again, counted"),
            (Claim.RETRY, True, BARE, "again, counted"),
            (Claim.UNKNOWN, False, KEYED, "unknown"),
        ],
    )
    def test_of_an_action(
        self, claim: Claim, call: Call, expected: str, *, uncertain: bool
    ) -> None:
        """As an answer that says the same."""
        verdict = of_action(Claimed(claim=claim, message="no"), call=call, uncertain=uncertain)

        assert kind(verdict) == expected
        assert problem_of(verdict) == "no"

    @pytest.mark.parametrize(
        ("claim", "expected"),
        [
            (Claim.REFUSED, "refused, none"),
            (Claim.RETRY, "again, counted"),
            (Claim.UNKNOWN, "unknown"),
        ],
    )
    def test_of_a_compensation(self, claim: Claim, expected: str) -> None:
        """The same."""
        assert kind(of_compensation(Claimed(claim=claim, message="no"))) == expected

    @pytest.mark.parametrize(
        ("told", "waits"), [(None, None), (2.5, 2.5), (1e300, 3600), (float("inf"), 3600), (0, 0)]
    )
    def test_it_may_say_how_long_to_wait(self, told: float | None, waits: float | None) -> None:
        """Within an hour."""
        verdict = of_action(Claimed(claim=Claim.RETRY, message="later", retry_after_seconds=told))

        assert isinstance(verdict, TryAgain)
        assert verdict.wait == (None if waits is None else seconds(waits))

    def test_only_a_refusal_is_one(self) -> None:
        """Late, too."""
        refusals = [claim for claim in Claim if is_refusal(KEYED, Claimed(claim=claim, message=""))]

        assert refusals == [Claim.REFUSED]
        assert not any(is_success(KEYED, Claimed(claim=claim, message="")) for claim in Claim)
