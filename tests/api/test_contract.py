"""The contract, tried by schemathesis: whatever is sent, what comes back is what is documented.

The real application runs over a real Postgres, with an engine whose tools answer in every way, so
that sagas come to every status while they are asked about. What is sent follows from the OpenAPI
document alone: values that it allows and values that it does not, one call at a time and, by its
links, one after the other. `make fuzz-api` sends more of it.
"""

import contextlib
import itertools
import os
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import pytest
import schemathesis
from fastapi import FastAPI
from schemathesis import engine
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events
from schemathesis.hooks import HookContext
from schemathesis.python import asgi
from schemathesis.schemas import BaseSchema

from app.api import create_api
from app.core.callbacks import token_of
from app.operations import Context, StartRequest, publish_definition, start_saga
from app.store import Watch
from tests.api.builders import a_callback_step, a_document, a_step
from tests.api.conftest import always_ready
from tests.api.test_openapi import OPERATIONS
from tests.engine.replica import a_replica
from tests.engine.tools import Tools
from tests.store.place import answered

EXAMPLES = int(os.environ.get("AMENDS_FUZZ_EXAMPLES", "12"))
"""For each operation; twice as many scenarios. Twelve take half a minute."""

DEFINITIONS = ("done", "undone", "stranded", "awaited")

VALID = "positive_data_acceptance"

NO_FAULTS = {
    ("publish_definition", VALID): "no schema says what fits together",
    ("validate_definition", VALID): "the same",
    ("validate_definition", "allow_header_conformance"): "a definition may be named `validate`",
    ("start_saga", VALID): "the same as of a definition, and an input has a schema of its own",
    ("resolve_step", VALID): "numbers of more than 64 bits would lose digits",
    ("receive_callback", VALID): "the same",
    ("list_sagas", VALID): "which characters can be printed, and what a cursor looks like",
    ("list_definitions", VALID): "what a cursor looks like",
}
"""What is not asked of an operation, and why it cannot be: that it takes all that its schema does,
and that it knows only the methods that the document lists for its path."""


def some_tools() -> Tools:
    """Tools of which one refuses, one refuses even the undo, and one only acknowledges."""
    tools = Tools()
    tools.answer("refused", answered(402))
    tools.answer("kept", answered(201, {"id": "K1"}))
    tools.answer("kept", answered(400), call="compensation")
    tools.answer("awaited", answered(202, {"accepted": True}))
    for step in ("flight", "hotel"):
        tools.answer(step, answered(201, {"id": "X1"}))
    return tools


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Context]:
    """A replica at work, with a definition for each way that a saga can go."""
    async with a_replica(url, tools=some_tools()) as running:
        watch = Watch(running.database)
        running.journal.listen(watch.notify)
        await watch.start()
        context = Context(
            tenant=running.tenant,
            database=running.database,
            journal=running.journal,
            definitions=running.definitions,
            watch=watch,
            variables={},
        )
        for name, steps in {
            "done": [a_step("flight"), a_step("hotel")],
            "undone": [a_step("flight"), a_step("refused")],
            "stranded": [a_step("kept"), a_step("refused")],
            "awaited": [a_callback_step("awaited"), a_step("hotel")],
        }.items():
            await publish_definition(context, a_document(name, steps=steps))
        yield context
        await watch.stop()


async def a_token(context: Context) -> str:
    """The token of a call whose tool reports by webhook."""
    started = await start_saga(context, StartRequest(definition="awaited"))
    (call,) = started.saga.calls.values()
    return token_of(started.saga.facts, call)


@pytest.fixture
def contract(database_url: str) -> Iterator[BaseSchema]:
    """The application's own document, and the application behind it."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with opened(database_url) as context:
            app.state.context = context
            app.state.token = await a_token(context)
            yield

    app = create_api(
        cast("Context", None),
        api_keys=("a key",),
        readiness=always_ready,
        version="0",
        lifespan=lifespan,
    )
    config = SchemathesisConfig.from_dict(
        {
            "auth": {"openapi": {"ApiKey": {"bearer": "a key"}}},
            "seed": 1,
            "generation": {"max-examples": EXAMPLES, "deterministic": True},
            "phases": {"stateful": {"generation": {"max-examples": 2 * EXAMPLES}}},
            "operations": [
                {"include-operation-id": name, "checks": {check: {"enabled": False}}}
                for name, check in NO_FAULTS
            ],
        }
    )
    headers = {"Authorization": "Bearer a key"}
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, config=config, headers=headers)
    schema.hook("map_body")(name_what_there_is)
    schema.hook("map_headers")(wait_for_nothing)

    def report_what_is_awaited(context: HookContext, names: Any) -> Any:
        """Every other report has a token of ours."""
        if not names or "token" not in names or zlib.crc32(names["token"].encode()) % 2:
            return names
        return {"token": app.state.token}

    schema.hook("map_path_parameters")(report_what_is_awaited)
    yield schema
    asgi.shutdown_lifespans()


def name_what_there_is(context: HookContext, body: Any) -> Any:
    """Start sagas of the definitions that there are: other names are not found, time and again."""
    name = body.get("definition") if isinstance(body, dict) else None
    is_start = context.operation is not None and context.operation.label == "POST /v1/sagas"
    if not is_start or not isinstance(name, str):
        return body
    if not 1 <= len(name) <= 100 or not name.isprintable():
        return body
    return {**body, "definition": DEFINITIONS[zlib.crc32(name.encode()) % len(DEFINITIONS)]}


def wait_for_nothing(context: HookContext, headers: Any) -> Any:
    """Be answered at once: some of these sagas never come to rest."""
    return {**headers, "Prefer": "wait=0"} if headers and "Prefer" in headers else headers


def faults_in(event: events.EngineEvent) -> Iterator[str]:
    """What was found, with the request that shows it."""
    match event:
        case events.ScenarioFinished():
            for check in itertools.chain.from_iterable(event.recorder.checks.values()):
                if check.failure_info is not None:
                    found = check.failure_info
                    yield f"{event.label}: {found.failure.message}\n{found.code_sample}"
        case events.NonFatalError():
            yield f"{event.label}: {event.value!r}"
        case events.FatalError():
            yield repr(event.exception)
        case _:
            pass


def answers_in(event: events.EngineEvent) -> Iterator[tuple[str, int]]:
    """The operations that were tried, and the statuses they were answered with."""
    if not isinstance(event, events.ScenarioFinished):
        return
    for name, interaction in event.recorder.interactions.items():
        if interaction.response is not None:
            label = event.recorder.cases[name].value.operation.label
            yield label, interaction.response.status_code


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
def test_the_contract_is_kept(contract: BaseSchema) -> None:
    """Whatever is sent, one by one or one after the other, is answered as it is documented."""
    told = list(engine.from_schema(contract).execute())
    faults = dict.fromkeys(fault for event in told for fault in faults_in(event))
    answers = Counter(answer for event in told for answer in answers_in(event))
    lines = [f"{count:6} {status} {label}" for (label, status), count in sorted(answers.items())]

    assert not faults, "\n\n".join([*faults, "\n".join(lines)])
    assert len({label for label, _ in answers}) == len(OPERATIONS), "\n".join(lines)
    # It was no empty talk: sagas were started, told something, and refused something.
    told_so = {status for label, status in answers if "{saga_id}/" in label}
    assert {202, 404, 409} <= told_so, "\n".join(lines)
