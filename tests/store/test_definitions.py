"""Definitions: immutable versions, read once, however many ask at once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.core.errors import NotFound
from app.core.saga import DefinitionRef
from app.store import Definitions, find_latest, list_definitions, list_versions, publish
from tests.core.builders import a_definition, a_step
from tests.store.place import Place, a_place
from tests.store.proxy import Cut, Proxy, a_proxy

FIRST = DefinitionRef(name="book_trip", version=1)


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[Proxy]:
    """The way to the database."""
    async with a_proxy(database_url) as proxy:
        yield proxy


@pytest.fixture
async def far(proxy: Proxy) -> AsyncIterator[Place]:
    """A place behind the proxy."""
    async with a_place(proxy.url) as place:
        yield place


async def test_other_content_makes_the_next_version_and_the_same_none(place: Place) -> None:
    """The latest version's content again makes nothing; an older one's is a change like any."""
    other = a_definition(a_step("hotel"))

    assert (FIRST, 2) == (
        await place.publish(a_definition()),
        (await place.publish(other)).version,
    )
    assert 2 == (await place.publish(other)).version
    assert 3 == (await place.publish(a_definition())).version
    async with place.database.read() as tx:
        assert [3, 2, 1] == [
            v.version for v in await list_versions(tx, place.tenant.id, "book_trip")
        ]
        latest = await find_latest(tx, place.tenant.id, "book_trip")
        listed = await list_definitions(tx, place.tenant.id, after="", limit=10)
    assert latest == DefinitionRef(name="book_trip", version=3)
    assert [("book_trip", 3)] == [(each.name, each.version) for each in listed]


async def test_twenty_publish_one_content_at_once(place: Place, other: Place) -> None:
    """The same content from many replicas in one moment makes one version."""
    new = a_definition(a_step("hotel"))

    references = await asyncio.gather(
        *((place, other)[number % 2].publish(new) for number in range(20))
    )

    assert {DefinitionRef(name="book_trip", version=2)} == set(references)


async def test_twenty_publish_different_contents_at_once(place: Place) -> None:
    """Twenty contents in one moment make twenty versions, without a gap."""
    references = await asyncio.gather(
        *(place.publish(a_definition(a_step(f"step_{number}"))) for number in range(20))
    )

    assert list(range(2, 22)) == sorted(reference.version for reference in references)


async def test_a_cold_definition_is_read_once(far: Place, proxy: Proxy) -> None:
    """Two hundred starts meet a definition that nobody has read yet: one reads it."""
    before = proxy.runs("SELECT document")

    await asyncio.gather(*(far.start() for _ in range(200)))

    assert 1 == proxy.runs("SELECT document") - before


async def test_a_version_is_kept_and_what_is_too_much_is_not(place: Place) -> None:
    """What was read is not read again, and no more is kept than was asked for."""
    await place.publish(a_definition(a_step("hotel")))
    second = DefinitionRef(name="book_trip", version=2)
    definitions = Definitions(place.database, kept_max=1)

    first = await definitions.fetch(place.tenant.id, FIRST)
    assert first is await definitions.fetch(place.tenant.id, FIRST)
    await definitions.fetch(place.tenant.id, second)
    assert first is not await definitions.fetch(place.tenant.id, FIRST)


async def test_a_version_that_there_is_not_is_not_found(place: Place) -> None:
    """An unknown name or version is refused."""
    for reference in (
        DefinitionRef(name="book_trip", version=9),
        DefinitionRef(name="nothing", version=1),
    ):
        with pytest.raises(NotFound):
            await place.definitions.fetch(place.tenant.id, reference)


async def test_a_publication_whose_commit_got_no_answer_may_be_repeated(
    far: Place, proxy: Proxy
) -> None:
    """Publishing again after a lost answer meets the version that was made."""
    new = a_definition(a_step("hotel"))
    cut = proxy.cut("COMMIT", Cut.AFTER)

    with pytest.raises(Exception, match="does not answer"):
        await far.publish(new)

    assert cut.is_set()
    async with far.database.write() as tx:
        published = await publish(tx, far.tenant.id, new)
    assert (2, False) == (published.reference.version, published.is_new)
