"""The stored form of entries: what is written is read back the same, for ever.

It belongs to ``app/store``, and is tested here since it needs no database. Every story of
``builders`` is stored and read back too.
"""

import datetime as dt
import json
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from app.core.entries import Entry, Reception
from app.core.events import (
    AttemptObserved,
    CallbackReceived,
    CancelRequested,
    Fact,
    PauseRequested,
    ResolveRequested,
    ResumeRequested,
    RetryRequested,
    SagaRequested,
    SagaWoken,
    SkipRequested,
    TerminateRequested,
    UndoRequested,
)
from app.core.identity import CallKey, Direction, EntryId, Incarnation, SagaId, StepId, TenantId
from app.core.json_value import JsonValue
from app.core.observation import (
    Answered,
    BrokenOff,
    BrokenOffReason,
    Claim,
    Claimed,
    NotSent,
    NotSentReason,
)
from app.core.requests import FunctionRequest, HttpRequest
from app.core.saga import (
    Attempt,
    CallbackOutcome,
    CallState,
    CallStatus,
    Cause,
    Code,
    Conclusion,
    DefinitionRef,
    Doubt,
    Effect,
    Failure,
    Heard,
    Output,
    Pause,
    Pending,
    Problem,
    Question,
    SagaStatus,
    Settling,
    Stuck,
    Wish,
)
from app.store.encoding import FACT_NAMES, dump_entry, dump_failure, load_entry, load_failure
from tests.core.builders import (
    FLIGHT,
    HERE,
    T0,
    a_call_state,
    a_conclusion,
    a_request,
    an_attempt,
    an_entry,
    seconds,
    without_body,
)


def stored(entry: Entry) -> Entry:
    """The entry as it is read back from its row."""
    return load_entry(
        seq=entry.seq,
        id=entry.id,
        at=entry.at,
        type=FACT_NAMES[type(entry.fact)],
        data=dump_entry(entry),
    )


# What a text and a number may be: PostgreSQL stores the JSON as text, so NUL is fine; what UTF-8 or
# 64 bits cannot hold is refused where it would come in.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(min_value=-(2**63), max_value=2**64 - 1) | st.floats(
    allow_nan=False, allow_infinity=False
)
JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
UUIDS = st.uuids()
MOMENTS = st.datetimes(
    dt.datetime(2020, 1, 1),  # noqa: DTZ001 - the zone follows
    dt.datetime(2200, 1, 1),  # noqa: DTZ001 - the zone follows
    timezones=st.just(dt.UTC),
)
DURATIONS = st.timedeltas(seconds(0.000001), dt.timedelta(days=365))
COUNTS = st.integers(min_value=0, max_value=10_000)
STEPS = st.sampled_from(["a", "flight", "x_9"]).map(StepId)
PROBLEMS = st.builds(
    Problem,
    code=st.sampled_from(Code),
    message=TEXTS,
    http_status=st.none() | st.integers(100, 599),
)
OUTPUTS = st.builds(Output, value=JSON)
REQUESTS = st.builds(
    HttpRequest,
    method=st.sampled_from(["GET", "POST", "DELETE"]),
    url=TEXTS.map(lambda text: "https://a.test/" + text),
    headers=st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple),
    body=st.none() | TEXTS,
    content_type=st.none() | st.just("application/json"),
) | st.builds(FunctionRequest, function=TEXTS, arguments=TEXTS)
OBSERVATIONS = (
    st.builds(NotSent, reason=st.sampled_from(NotSentReason), message=TEXTS)
    | st.builds(BrokenOff, reason=st.sampled_from(BrokenOffReason), message=TEXTS)
    | st.builds(
        Answered,
        status=st.integers(100, 599),
        retry_after=st.none() | TEXTS,
        body=JSON,
        readable=st.booleans(),
        body_bytes=COUNTS,
    )
    | st.builds(
        Claimed,
        claim=st.sampled_from(Claim),
        message=TEXTS,
        retry_after_seconds=st.none() | st.floats(min_value=0.5, max_value=7200),
    )
)
VERBS = {"actor": TEXTS, "reason": TEXTS}
FACTS: st.SearchStrategy[Fact] = st.one_of(
    st.builds(
        SagaRequested,
        id=UUIDS.map(SagaId),
        tenant=COUNTS.map(TenantId),
        definition=st.builds(DefinitionRef, name=TEXTS, version=COUNTS),
        input=JSON,
        vars=st.dictionaries(TEXTS, JSON, max_size=3),
        key_seed=st.binary(min_size=16, max_size=16),
        business_key=st.none() | TEXTS,
        labels=st.dictionaries(TEXTS, TEXTS, max_size=3),
        deadline=st.none() | DURATIONS,
    ),
    st.builds(
        AttemptObserved,
        step=STEPS,
        direction=st.sampled_from(Direction),
        attempt=COUNTS,
        observation=OBSERVATIONS,
    ),
    st.builds(SagaWoken, losses=COUNTS),
    st.builds(
        CallbackReceived,
        step=STEPS,
        direction=st.sampled_from(Direction),
        generation=COUNTS,
        outcome=st.sampled_from(CallbackOutcome),
        output=JSON,
        error=st.none() | TEXTS.filter(bool),
        effect=st.none() | st.sampled_from(Effect),
        progress=JSON,
        body_bytes=COUNTS,
        digest=TEXTS.filter(bool),
    ),
    st.builds(CancelRequested, **VERBS),
    st.builds(TerminateRequested, **VERBS),
    st.builds(PauseRequested, **VERBS),
    st.builds(ResumeRequested, **VERBS),
    st.builds(RetryRequested, **VERBS),
    st.builds(
        ResolveRequested,
        **VERBS,
        step=STEPS,
        effect=st.sampled_from([Effect.DONE, Effect.NONE]),
        output=JSON,
        output_bytes=COUNTS,
        evidence=JSON,
    ),
    st.builds(SkipRequested, **VERBS, step=STEPS),
    st.builds(UndoRequested, **VERBS, step=STEPS, saga=UUIDS.map(SagaId)),
)
FAILURES = st.builds(
    Failure, cause=st.sampled_from(Cause), step=st.none() | STEPS, problem=PROBLEMS
)
CONCLUSIONS = st.builds(
    Conclusion,
    status=st.sampled_from(SagaStatus),
    owner=st.none() | UUIDS.map(Incarnation),
    due_at=st.none() | MOMENTS,
    failure=st.none() | FAILURES,
    stuck=st.none()
    | st.builds(
        Stuck,
        step=st.none() | STEPS,
        question=st.sampled_from(Question),
        problem=PROBLEMS,
        resumes=st.sampled_from(SagaStatus),
    ),
    output=st.none() | OUTPUTS,
    attention=st.booleans(),
    finished_at=st.none() | MOMENTS,
    weight_bytes=COUNTS,
    pause=st.none()
    | st.builds(Pause, actor=TEXTS, reason=TEXTS, resumes=st.sampled_from(SagaStatus)),
    pending=st.none()
    | st.builds(
        Pending,
        wish=st.sampled_from(Wish),
        actor=st.none() | TEXTS.filter(bool),
        reason=st.none() | TEXTS.filter(bool),
        failure=st.none() | FAILURES,
        lapsed=st.booleans(),
    ),
    forward_only=st.booleans(),
)
CALLS = st.builds(
    CallState,
    step=STEPS,
    direction=st.sampled_from(Direction),
    status=st.sampled_from(CallStatus),
    effect=st.sampled_from(Effect),
    generation=COUNTS,
    key=UUIDS.map(CallKey),
    request=st.none() | REQUESTS,
    attempts=COUNTS,
    first_attempt=st.integers(min_value=1, max_value=10_000),
    tries=COUNTS,
    failures=COUNTS,
    round_started_at=MOMENTS,
    first_sent_at=MOMENTS,
    open=st.none()
    | st.builds(
        Attempt,
        number=COUNTS,
        incarnation=UUIDS.map(Incarnation),
        send_by=MOMENTS,
        quiet_at=MOMENTS,
        known_before=st.sampled_from(Effect),
    ),
    due_at=st.none() | MOMENTS,
    not_before=st.none() | MOMENTS,
    uncertain=st.booleans(),
    doubts=st.lists(st.builds(Doubt, attempt=COUNTS, quiet_at=MOMENTS), max_size=2).map(tuple),
    settling=st.sampled_from(Settling),
    output=st.none() | OUTPUTS,
    accepted=st.none() | OUTPUTS,
    progress=st.none() | OUTPUTS,
    heard=st.none() | st.builds(Heard, outcome=st.sampled_from(CallbackOutcome), digest=TEXTS),
    error=st.none() | PROBLEMS,
    started_at=MOMENTS,
    finished_at=st.none() | MOMENTS,
    concluded_seq=st.none() | st.integers(min_value=1, max_value=10_000),
)
BRIEF = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@given(fact=FACTS, at=MOMENTS, entry_id=UUIDS)
@BRIEF
def test_a_fact_is_read_back_as_it_was(fact: Fact, at: dt.datetime, entry_id: UUID) -> None:
    """Whatever was reported comes back, but for the body of an answer, which is not stored."""
    entry = Entry(seq=7, id=EntryId(entry_id), at=at, fact=fact, now=a_conclusion(), calls=())

    read = stored(entry)

    assert read.fact == without_body(fact)
    assert (read.seq, read.id, read.at) == (7, entry_id, at)


@given(now=CONCLUSIONS)
@BRIEF
def test_a_conclusion_is_read_back_as_it_was(now: Conclusion) -> None:
    """How the saga stands comes back."""
    assert stored(an_entry(SagaWoken(), now=now)).now == now


@given(call=CALLS)
@BRIEF
def test_a_call_is_read_back_as_it_was(call: CallState) -> None:
    """How a call stands comes back."""
    assert stored(an_entry(SagaWoken(), calls=[call, call])).calls == (call, call)


@pytest.mark.parametrize("reception", [None, *Reception])
def test_what_became_of_a_callback_is_read_back(reception: Reception | None) -> None:
    """The same report again is answered as it was the first time."""
    entry = replace(an_entry(SagaWoken()), reception=reception)

    assert stored(entry).reception is reception


@pytest.mark.parametrize(
    "value", [None, False, True, 0, 0.0, -0.0, "", [], {}, [None], {"": None}, "a\x00b", "😀"]
)
def test_values_that_look_like_nothing_are_kept(value: JsonValue) -> None:
    """Null, false, 0 and the empty ones are inputs and outputs like any other."""
    call = a_call_state(output=Output(value=value))
    fact = SagaRequested(
        **{name: getattr(a_request(), name) for name in SagaRequested.__slots__ if name != "input"},
        input=value,
    )

    read = stored(an_entry(fact, calls=[call]))

    assert isinstance(read.fact, SagaRequested)
    assert json.dumps(read.fact.input) == json.dumps(value)
    output = read.calls[0].output
    assert output is not None
    assert json.dumps(output.value) == json.dumps(value)


@pytest.mark.parametrize("number", [2**64 - 1, -(2**63), 2**53 + 1, 0.1 + 0.2, 1e-323, 1e308])
def test_numbers_keep_all_their_digits(number: float) -> None:
    """An amount of money comes back to the last digit."""
    (call,) = stored(an_entry(calls=[a_call_state(output=Output(value=number))])).calls

    assert call.output == Output(value=number)
    assert isinstance(call.output.value, type(number))


def test_an_empty_body_is_not_the_same_as_none() -> None:
    """A request with an empty body is resent with an empty body."""
    for body in (None, ""):
        request = HttpRequest(method="POST", url="https://a.test/", body=body)
        call = CallState(
            **{
                name: getattr(a_call_state(), name)
                for name in CallState.__slots__
                if name != "request"
            },
            request=request,
        )

        assert stored(an_entry(calls=[call])).calls[0].request == request


def test_the_body_of_an_answer_is_stored_once() -> None:
    """It is kept as the call's output; the fact keeps the status."""
    answer = Answered(status=201, body={"secret": "S" * 100}, body_bytes=113)
    fact = AttemptObserved(step=FLIGHT, direction=Direction.ACTION, attempt=1, observation=answer)
    entry = an_entry(fact, calls=[a_call_state(output=Output(value=answer.body))])

    assert dump_entry(entry).count("SSS" * 30) == 1


def test_time_keeps_its_microseconds() -> None:
    """Leases and due times come back exactly."""
    moment = T0 + dt.timedelta(microseconds=1)

    assert stored(an_entry(calls=[a_call_state(attempt=an_attempt())])).calls[0].open is not None
    assert (
        load_entry(
            seq=1,
            id=UUID(int=1),
            at=moment,
            type="saga_woken",
            data=dump_entry(an_entry(SagaWoken())),
        ).at
        == moment
    )


@given(failure=FAILURES)
@BRIEF
def test_a_failure_is_read_back_as_it_was(failure: Failure) -> None:
    """The head row's failure column holds the same as the entry."""
    assert load_failure(json.loads(dump_failure(failure))) == failure


OLD_NOW = '"now":{"status":"running","owner":"00000000-0000-0000-0000-000000000001"}'

OLD_REQUEST = (
    '{"id":"00000000-0000-0000-0000-000000000007","tenant":1,'
    '"definition":{"name":"book_trip","version":1},"input":{"value":{"city":"Oslo"}},'
    '"vars":{},"key_seed":"000102030405060708090a0b0c0d0e0f","business_key":null,"labels":{},'
    '"deadline_seconds":90.5}'
)
OLD_OBSERVED = (
    '{"step":"flight","direction":"action","attempt":2,'
    '"observation":{"status":503,"retry_after":"7"}}'
)

OLD_FACTS: dict[str, tuple[str, Fact]] = {
    "saga_requested": (OLD_REQUEST, a_request(deadline=seconds(90.5))),
    "saga_woken": ("{}", SagaWoken()),
    "cancel_requested": (
        '{"actor":"ann","reason":""}',
        CancelRequested(actor="ann", reason=""),
    ),
    "retry_requested": (
        '{"actor":"ann","reason":"mended"}',
        RetryRequested(actor="ann", reason="mended"),
    ),
    "terminate_requested": (
        '{"actor":"ann","reason":"enough"}',
        TerminateRequested(actor="ann", reason="enough"),
    ),
    "pause_requested": (
        '{"actor":"ann","reason":"wait"}',
        PauseRequested(actor="ann", reason="wait"),
    ),
    "resume_requested": (
        '{"actor":"ann","reason":"go"}',
        ResumeRequested(actor="ann", reason="go"),
    ),
    "resolve_requested": (
        '{"actor":"ann","reason":"seen","step":"flight","effect":"done","evidence":{"value":[1]}}',
        ResolveRequested(actor="ann", reason="seen", step=FLIGHT, effect=Effect.DONE, evidence=[1]),
    ),
    "skip_requested": (
        '{"actor":"ann","reason":"let it be","step":"flight"}',
        SkipRequested(actor="ann", reason="let it be", step=FLIGHT),
    ),
    "undo_requested": (
        (
            '{"actor":"ann","reason":"late","step":"flight",'
            '"saga":"00000000-0000-0000-0000-000000000009"}'
        ),
        UndoRequested(actor="ann", reason="late", step=FLIGHT, saga=SagaId(UUID(int=9))),
    ),
    "callback_received": (
        (
            '{"step":"flight","direction":"action","generation":2,"outcome":"failed",'
            '"error":"no","effect":"unknown","body_bytes":7,"digest":"d"}'
        ),
        CallbackReceived(
            step=FLIGHT,
            direction=Direction.ACTION,
            generation=2,
            outcome=CallbackOutcome.FAILED,
            error="no",
            effect=Effect.UNKNOWN,
            body_bytes=7,
            digest="d",
        ),
    ),
    "attempt_observed": (
        OLD_OBSERVED,
        AttemptObserved(
            step=FLIGHT,
            direction=Direction.ACTION,
            attempt=2,
            observation=Answered(status=503, retry_after="7"),
        ),
    ),
}


@pytest.mark.parametrize("name", FACT_NAMES.values())
def test_rows_of_this_format_are_read_for_ever(name: str) -> None:
    """These very texts were written by the first release; every later one reads them."""
    text, fact = OLD_FACTS[name]
    data = f'{{"fact":{text},{OLD_NOW}}}'

    read = load_entry(seq=1, id=UUID(int=1), at=T0, type=name, data=data)

    assert read.fact == fact
    assert read.now == a_conclusion(owner=HERE)


def test_an_old_call_is_read_for_ever() -> None:
    """So is this text of a call, with all that a call can hold."""
    data = (
        '{"fact":{"losses":2},"now":{"status":"stuck","failure":{"cause":"step_failed",'
        '"step":"flight","problem":{"code":"refused","message":"no","http_status":402}},'
        '"stuck":{"step":"flight","question":"how_to_undo","problem":{"code":"busy",'
        '"message":"x"},"resumes":"compensating"},"attention":true,"weight_bytes":7,'
        '"output":{"value":null},"finished_at":"2026-01-01T12:00:00+00:00",'
        '"due_at":"2026-01-01T12:00:00.000001+00:00"},'
        '"calls":[{"step":"flight","direction":"compensation","status":"running",'
        '"effect":"unknown","generation":1,"key":"00000000-0000-0000-0000-000000000063",'
        '"request":{"http":{"method":"POST","url":"https://a.test/","headers":[["A","b"]],'
        '"body":{"text":"{}"},"content_type":"application/json"}},"attempts":3,'
        '"first_attempt":2,"tries":2,"failures":2,"not_before":"2026-01-01T12:00:05+00:00",'
        '"round_started_at":"2026-01-01T12:00:00+00:00",'
        '"first_sent_at":"2026-01-01T12:00:00+00:00","open":{"number":3,'
        '"incarnation":"00000000-0000-0000-0000-000000000001",'
        '"send_by":"2026-01-01T12:00:06+00:00","quiet_at":"2026-01-01T12:00:21+00:00",'
        '"known_before":"none"},"due_at":"2026-01-01T12:00:00+00:00","uncertain":true,'
        '"doubts":[[2,"2026-01-01T12:00:07+00:00"]],"settling":true,"output":{"value":1},'
        '"error":{"code":"timed_out"},"started_at":"2026-01-01T12:00:00+00:00",'
        '"finished_at":"2026-01-01T12:00:00+00:00","concluded_seq":4}]}'
    )

    read = load_entry(seq=1, id=UUID(int=1), at=T0, type="saga_woken", data=data)

    assert read == stored(read)
    assert read.fact == SagaWoken(losses=2)
    (call,) = read.calls
    assert (call.generation, call.attempts, call.failures) == (1, 3, 2)
    assert (call.first_attempt, call.tries, call.not_before) == (2, 2, T0 + seconds(5))
    assert call.doubts == (Doubt(attempt=2, quiet_at=T0 + seconds(7)),)
    assert call.open == an_attempt(3)
    assert call.error == Problem(code=Code.TIMED_OUT, message="")
    assert read.now.stuck is not None
    assert read.now.stuck.resumes is SagaStatus.COMPENSATING


def test_a_row_of_an_unknown_fact_is_refused() -> None:
    """A later release's fact is never read as something else."""
    with pytest.raises(ValueError, match="saga_forked"):
        load_entry(
            seq=1,
            id=UUID(int=1),
            at=T0,
            type="saga_forked",
            data='{"now":{"status":"running"}}',
        )


def test_every_fact_has_a_name_of_its_own() -> None:
    """Names are public: they are the types of the events that are listed."""
    assert len(set(FACT_NAMES.values())) == len(FACT_NAMES) == len(OLD_FACTS)
