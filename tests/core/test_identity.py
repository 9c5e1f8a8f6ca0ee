"""Names: keys differ where they must, stay the same where they must, and are UUIDs in form."""

from uuid import RFC_4122, UUID

import pytest
from hypothesis import given, strategies as st

from app.core.identity import (
    CallKey,
    Direction,
    SagaId,
    StepId,
    derive_call_key,
    derive_key_seed,
    derive_saga_id,
)
from tests.core.builders import ACTION, COMPENSATION, FLIGHT, HOTEL, SEED

SECRET = b"s" * 32
OTHER_SECRET = b"t" * 32


def a_key(
    *,
    key_seed: bytes = SEED,
    step: StepId = FLIGHT,
    direction: Direction = ACTION,
    generation: int = 0,
) -> CallKey:
    """The key of a call."""
    return derive_call_key(key_seed=key_seed, step=step, direction=direction, generation=generation)


def test_a_call_has_the_same_key_for_ever() -> None:
    """The derivation is part of what is stored: this very key must come out in every release."""
    assert a_key() == UUID("91379cff-3574-8134-939f-6ed05024bab7")


def test_a_saga_id_is_the_same_for_ever() -> None:
    """A client that posts again after an upgrade meets the same saga."""
    derived = derive_saga_id(tenant_secret=SECRET, idempotency_key="order-1")

    assert derived == UUID("c849dd93-3e3a-824b-b212-ee56fd0894c0")


@pytest.mark.parametrize(
    "other",
    [
        a_key(key_seed=SEED[::-1]),
        a_key(step=HOTEL),
        a_key(direction=COMPENSATION),
        a_key(generation=1),
        a_key(step=StepId("fligh"), generation=0),
        a_key(step=StepId("flightaction")),
    ],
)
def test_each_part_of_the_name_changes_the_key(other: CallKey) -> None:
    """Another saga, step, direction or generation has another key."""
    assert a_key() != other


_PARTS = st.tuples(st.text(max_size=8), st.sampled_from(list(Direction)), st.integers(0, 12))


@given(first=_PARTS, second=_PARTS)
def test_different_names_never_share_a_key(
    first: tuple[str, Direction, int], second: tuple[str, Direction, int]
) -> None:
    """Parts are not run together: what differs anywhere differs in the key."""
    keys = [
        a_key(step=StepId(step), direction=direction, generation=generation)
        for step, direction, generation in (first, second)
    ]

    assert (keys[0] == keys[1]) == (first == second)


@given(step=st.text(max_size=8), generation=st.integers(0, 1000))
def test_a_key_is_a_uuid_in_form(step: str, generation: int) -> None:
    """Tools that insist on a UUID of the RFC accept it: version 8, the RFC's variant."""
    key = a_key(step=StepId(step), generation=generation)

    assert (key.version, key.variant) == (8, RFC_4122)


@given(key=st.text(max_size=300))
def test_a_saga_id_follows_from_secret_and_header(key: str) -> None:
    """The same header names the same saga within a tenant, and another one in another tenant."""
    saga = derive_saga_id(tenant_secret=SECRET, idempotency_key=key)

    assert saga == derive_saga_id(tenant_secret=SECRET, idempotency_key=key)
    assert saga != derive_saga_id(tenant_secret=OTHER_SECRET, idempotency_key=key)


def test_headers_are_taken_as_they_are() -> None:
    """Letter case and spaces tell idempotency keys apart."""
    ids = {
        derive_saga_id(tenant_secret=SECRET, idempotency_key=key) for key in ("a", "A", "a ", "")
    }

    assert len(ids) == 4


def test_a_saga_has_a_seed_of_its_own() -> None:
    """Seeds differ by saga and by tenant, and are 16 bytes."""
    sagas = [SagaId(UUID(int=1)), SagaId(UUID(int=2))]
    seeds = {
        derive_key_seed(tenant_secret=secret, saga=saga)
        for secret in (SECRET, OTHER_SECRET)
        for saga in sagas
    }

    assert len(seeds) == 4
    assert {len(seed) for seed in seeds} == {16}


def test_the_saga_id_alone_does_not_give_its_keys() -> None:
    """Keys cannot be guessed from what is public: they hang on the tenant's secret."""
    saga = SagaId(UUID(int=1))

    keys = {
        a_key(key_seed=derive_key_seed(tenant_secret=secret, saga=saga))
        for secret in (SECRET, OTHER_SECRET)
    }

    assert len(keys) == 2
