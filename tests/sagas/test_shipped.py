"""The definitions in ``sagas/``: valid, without warnings, and fit for the example world."""

from pathlib import Path

import pytest

from app.core.definition import Definition, HttpTemplate, OnUnknown
from app.core.expressions import Scope
from app.core.identity import Direction
from app.core.json_value import JsonValue
from app.core.language import canonical_bytes, warnings
from app.schemas import check_input, load_definition, read_document
from examples.world.routes import Nowhere, route

FOLDER = Path(__file__).resolve().parents[2] / "sagas"
FILES = sorted(FOLDER.glob("*.yaml"))

KNOWN_WARNINGS = {"book_trip_in_parallel": ["steps[4]"]}
"""A mail that is optional, irreversible, and asked for once."""

WORLD = Scope(
    {
        "vars": {"world": "http://world.test"},
        "input": {"old_flight": "F1"},
        "action": {"output": {"id": "F2"}, "key": "00000000-0000-0000-0000-000000000001"},
    }
)


def load(name: str) -> Definition:
    """The definition in a file of that name."""
    raw = (FOLDER / f"{name}.yaml").read_bytes()
    return load_definition(read_document(raw, content_type="application/yaml"))


def test_there_are_definitions() -> None:
    """What is shipped is what the documentation names."""
    assert [path.stem for path in FILES] == [
        "book_trip",
        "book_trip_by_callback",
        "book_trip_in_parallel",
        "fulfil_order",
        "move_booking",
        "onboard_customer",
        "rent_car",
        "rent_car_in_python",
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_shipped_definition_is_valid(path: Path) -> None:
    """It has the name of its file, and nothing to warn of but what its comments tell."""
    definition = load(path.stem)

    assert definition.name == path.stem
    assert definition.description
    assert [fault.path for fault in warnings(definition)] == KNOWN_WARNINGS.get(path.stem, [])
    assert canonical_bytes(definition.document)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_shipped_definition_calls_what_the_world_has(path: Path) -> None:
    """Every request of it is one that the example world knows."""
    for step in load(path.stem).steps:
        for direction in Direction:
            call = step.find_call(direction)
            if call is None or not isinstance(call.request, HttpTemplate):
                continue
            url = call.request.url.render(WORLD)
            assert isinstance(url, str)
            assert url.startswith("http://world.test/")
            path_sent = url.removeprefix("http://world.test")
            assert not isinstance(route(call.request.method, path_sent), Nowhere)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("book_trip", {"city": "Lisbon", "card": "4242424242424242"}),
        ("book_trip", {"city": "Lisbon", "card": "4242424242424242", "amount": 199.5}),
        ("rent_car", {"city": "Lisbon", "card": "4242424242424242"}),
        (
            "move_booking",
            {"old_flight": "F1", "old_city": "Rome", "new_city": "Oslo", "card": "x", "fee": 20},
        ),
    ],
)
def test_a_shipped_definition_accepts_its_input(name: str, value: JsonValue) -> None:
    """What its documentation says to start it with is accepted."""
    assert check_input(load(name).input_schema, value) == []


def test_a_tool_without_keys_is_asked_once() -> None:
    """The fee of ``move_booking`` is never taken twice, and is refunded by our own key."""
    fee = load("move_booking").steps[1]

    assert fee.action.on_unknown is OnUnknown.GIVE_UP
    assert not fee.action.may_be_asked_again
    assert ("action", "key") in fee.call(Direction.COMPENSATION).request.references
