"""Callback tokens: what they name, and that nobody else can make them."""

from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from app.core.callbacks import (
    TOKEN_CHARACTERS_MAX,
    CallbackAddress,
    is_genuine,
    make_token,
    read_token,
    token_of,
)
from app.core.identity import Direction, SagaId, StepId, TenantId
from tests.core.builders import COMPENSATION, FLIGHT, SEED, Story, answered, refused

ADDRESSES = st.builds(
    CallbackAddress,
    tenant=st.integers(0, 2**32 - 1).map(TenantId),
    saga=st.uuids().map(SagaId),
    step=st.from_regex(r"[a-z][a-z0-9_]{0,63}", fullmatch=True).map(StepId),
    direction=st.sampled_from([Direction.ACTION, Direction.COMPENSATION]),
    generation=st.integers(0, 2**32 - 1),
)


def an_address(step: str = FLIGHT) -> CallbackAddress:
    """The address of a call."""
    return CallbackAddress(
        tenant=TenantId(1),
        saga=SagaId(UUID(int=7)),
        step=StepId(step),
        direction=Direction.ACTION,
        generation=0,
    )


@given(ADDRESSES, st.binary(min_size=16, max_size=16))
def test_a_token_is_read_back_and_genuine(address: CallbackAddress, seed: bytes) -> None:
    """It holds all that it takes to find the call, and fits into a URL as it is."""
    token = make_token(address, key_seed=seed)

    assert read_token(token) == address
    assert is_genuine(token, address, key_seed=seed)
    assert len(token) <= TOKEN_CHARACTERS_MAX
    assert token.replace("-", "").replace("_", "").isalnum()


def test_the_longest_step_id_fits() -> None:
    """Of 64 characters."""
    assert len(make_token(an_address("a" * 64), key_seed=SEED)) <= TOKEN_CHARACTERS_MAX


def test_another_seed_makes_another_token() -> None:
    """Who does not know the saga's seed cannot make one."""
    token = make_token(an_address(), key_seed=bytes(16))

    assert read_token(token) == an_address()
    assert not is_genuine(token, an_address(), key_seed=SEED)


@given(st.integers(0, 10_000), st.sampled_from("ABCabc019-_"))
def test_a_changed_token_is_not_genuine(place: int, other: str) -> None:
    """Whatever is changed: tenant, saga, step, direction, generation or code."""
    token = make_token(an_address(), key_seed=SEED)
    index = place % len(token)
    forged = token[:index] + other + token[index + 1 :]

    address = read_token(forged)

    if forged != token:
        assert address is None or not is_genuine(forged, address, key_seed=SEED)


@given(st.text() | st.text(alphabet="ABCDEFabcdef0123456789-_", max_size=300))
def test_anything_may_be_read(token: str) -> None:
    """What is no token is none, and raises nothing."""
    address = read_token(token)

    assert address is None or not is_genuine(token, address, key_seed=SEED)


@pytest.mark.parametrize("token", ["", "A", "====", "é", "A" * 10_000, "AAAA\n", "a b"])
def test_what_is_no_token(token: str) -> None:
    """Empty, short, foreign, endless, or with something else in it."""
    assert read_token(token) is None


def test_a_call_has_a_token_for_each_generation_and_direction() -> None:
    """A callback names the very call that it is about."""
    story = Story().start().book()
    story.answer(refused())
    story.answer(refused())
    first = token_of(story.saga.facts, story.call(direction=COMPENSATION))
    story.retry()
    second = token_of(story.saga.facts, story.call(direction=COMPENSATION))
    story.answer(answered(204))

    tokens = {first, second, token_of(story.saga.facts, story.call())}
    read = [read_token(token) for token in (first, second)]
    assert len(tokens) == 3
    assert [address.generation for address in read if address is not None] == [0, 1]
