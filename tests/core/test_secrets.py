"""Secrets: marked where they are rendered and stored, put in only where they are sent."""

import json

import pytest
from hypothesis import given, strategies as st

from app.core.requests import FunctionRequest, HttpRequest
from app.core.secrets import MissingSecret, as_template, mark, reveal
from tests.core.builders import SEED, Story, a_definition, a_step, http_of

SECRETS = {"bank_key": 's3cr3t "quoted" & more'}
MARK = mark("bank_key", key_seed=SEED)


def a_paying_step() -> dict[str, object]:
    """A step that names a secret in every part of its request."""
    http = {
        "method": "POST",
        "url": "https://bank.test/charges?key=${{ secrets.bank_key }}",
        "headers": {"Authorization": "Bearer ${{ secrets.bank_key }}"},
        "json": {"key": "${{ secrets.bank_key }}", "city": "${{ input.city }}"},
    }
    return {**a_step(undo_by="key"), "action": {"http": http, "idempotent": True}}


def test_what_is_stored_holds_no_secret() -> None:
    """The intent has a mark in its place, the same at every attempt."""
    story = Story(a_definition(a_paying_step())).start()  # type: ignore[arg-type] # JSON

    request = http_of(story.call())

    assert request.url == f"https://bank.test/charges?key={MARK}"
    assert request.headers == (("Authorization", f"Bearer {MARK}"),)
    assert json.loads(request.body or "") == {"key": MARK, "city": "Oslo"}


def test_what_is_sent_holds_it_encoded_for_its_place() -> None:
    """In a URL it is escaped, in JSON quoted, in a header as it is."""
    story = Story(a_definition(a_paying_step())).start()  # type: ignore[arg-type] # JSON

    sent = reveal(http_of(story.call()), SECRETS, key_seed=SEED)

    assert isinstance(sent, HttpRequest)
    assert sent.url.endswith("?key=s3cr3t%20%22quoted%22%20%26%20more")
    assert sent.headers == (("Authorization", f"Bearer {SECRETS['bank_key']}"),)
    assert json.loads(sent.body or "")["key"] == SECRETS["bank_key"]


def test_a_text_body_holds_it_as_it_is() -> None:
    """What is no JSON is not quoted."""
    request = HttpRequest(
        method="POST", url="https://a.test/", body=f"<k>{MARK}</k>", content_type="text/plain"
    )

    sent = reveal(request, SECRETS, key_seed=SEED)

    assert isinstance(sent, HttpRequest)
    assert sent.body == f"<k>{SECRETS['bank_key']}</k>"


def test_the_arguments_of_a_function_hold_it_as_json() -> None:
    """A function is given the secret as a text."""
    request = FunctionRequest(function="bank.charge", arguments=json.dumps({"key": MARK}))

    sent = reveal(request, SECRETS, key_seed=SEED)

    assert isinstance(sent, FunctionRequest)
    assert json.loads(sent.arguments) == {"key": SECRETS["bank_key"]}


@pytest.mark.parametrize(
    "text", [mark("bank_key", key_seed=b"x" * 16), "amends.secret.bank_key." + "0" * 32]
)
def test_a_mark_that_is_not_of_this_saga_is_a_text_like_any_other(text: str) -> None:
    """Neither an input nor another saga's request can bring a secret out."""
    request = HttpRequest(method="GET", url=f"https://a.test/{text}")

    assert reveal(request, SECRETS, key_seed=SEED) == request


def test_a_secret_that_is_not_configured_is_named() -> None:
    """The sender is told which one is missing."""
    request = HttpRequest(method="GET", url=f"https://a.test/{MARK}")

    with pytest.raises(MissingSecret, match="'bank_key'"):
        reveal(request, {}, key_seed=SEED)


@given(st.text())
def test_a_rendered_text_becomes_a_template_again(text: str) -> None:
    """Marks name their secrets again; nothing else in the text is evaluated."""
    again = as_template(f"{text}{MARK}", key_seed=SEED)

    assert again == text.replace("${{", "$${{") + "${{ secrets.bank_key }}"
