"""Switches: which rule decides for which request, and what a list has to look like."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import examples.world
from examples.world.switches import InvalidSwitchesError, Match, Switches
from tests.examples.client import Client

A_CALL = Match(method="POST", path="/charges", saga="s1", step="charge", call="action")


def switches(*given: Any) -> Switches:
    """Set switches."""
    made = Switches()
    made.replace(list(given))
    return made


def firings(made: Switches, count: int, call: Match = A_CALL) -> list[str | None]:
    """The faults, as JSON, that `count` equal requests meet."""
    return [made.fault_for(call).text for _ in range(count)]


def complaints(*given: Any) -> list[tuple[str, str]]:
    """What is said of a list: path and message."""
    with pytest.raises(InvalidSwitchesError) as caught:
        switches(*given)
    return [(each.path, each.message) for each in caught.value.complaints]


@pytest.mark.parametrize(
    ("match", "fires"),
    [
        ({}, True),
        ({"method": "POST", "path": "/ch", "saga": "s1", "step": "charge", "call": "action"}, True),
        ({"method": "GET"}, False),
        ({"path": "/charges/"}, False),
        ({"saga": "s2"}, False),
        ({"step": "flight"}, False),
        ({"call": "compensation"}, False),
    ],
)
def test_a_rule_is_for_what_it_matches(match: dict[str, str], fires: bool) -> None:  # noqa: FBT001
    """A rule fires if all that its match names is so; the path is a prefix."""
    made = switches({"match": match, "do": {"fail": 500}})

    assert firings(made, 1) == ['{"fail": 500}' if fires else None]


def test_a_rule_counts() -> None:
    """A rule lets the first requests pass, hits so many, and then leaves them to the next rule."""
    made = switches({"skip": 1, "times": 2, "do": {"fail": 500}}, {"do": {"fail": 503}})

    one, other = '{"fail": 500}', '{"fail": 503}'
    assert firings(made, 4) == [other, one, one, other]
    shown: Any = made.to_json()
    assert [(each["seen"], each["hits"]) for each in shown] == [(4, 2), (2, 2)]


def test_a_rule_without_limit_hits_all() -> None:
    """Without `times`, or with null, every request is hit; with zero none is."""
    assert None not in firings(switches({"do": {"late": 1}}), 100)
    assert None not in firings(switches({"times": None, "do": {"late": 1}}), 100)
    assert set(firings(switches({"times": 0, "do": {"late": 1}}), 100)) == {None}


def test_chance_repeats_with_its_seed() -> None:
    """A chance hits about its share, the same requests with the same seed, others with another."""
    first, same, other = (
        firings(switches({"chance": 0.3, "seed": seed, "do": {"late": 1}}), 1000)
        for seed in (7, 7, 8)
    )

    assert first == same
    assert first != other
    assert 200 < 1000 - first.count(None) < 400


def test_all_that_is_wrong_is_said_at_once() -> None:
    """Every fault of a list is reported with its path, and nothing is set."""
    found = complaints(
        {"match": {"verb": "GET", "method": "get"}, "times": -1, "do": {"fail": 404}},
        {"chance": 2, "do": {"drop": "maybe", "delay": "1s"}},
        {"do": {"fail": 500, "drop": "after"}},
        {"do": {}},
        {"resource": "trains", "honours_keys": "no", "deleted_again": 418},
        {"do": {"hold": "before"}, "extra": 1},
        {"do": {"answer": {"status": "x", "headers": {"A": "b\r\nc"}, "cookies": 1}}},
        {"do": {"answer": {}}},
        {"do": {"delay": float("nan")}},
        "fail",
        {"do": {"callback": "never", "acts": "soon"}},
        {"do": {"callback": ["maybe", {"to": "mars", "hold": 7, "with": 3, "x": 1}, 7]}},
        {"do": {"callback": ["truth", {"before": True}]}},
        {"do": {"drip": -1, "cut": "tail"}},
        {"resource": "cars", "shown_after_queries": 1.5, "calls_back": 1},
    )

    assert sorted({path for path, _ in found}, key=in_order) == [
        "$[0].do.fail",
        "$[0].match.method",
        "$[0].match.verb",
        "$[0].times",
        "$[1].chance",
        "$[1].do.delay",
        "$[1].do.drop",
        "$[2].do",
        "$[3].do",
        "$[4]",
        "$[4].honours_keys",
        "$[4].resource",
        "$[5].do",
        "$[5].extra",
        "$[6].do.answer",
        "$[6].do.answer.cookies",
        "$[6].do.answer.status",
        "$[7].do.answer",
        "$[8].do.delay",
        "$[9]",
        "$[10].do.acts",
        "$[10].do.callback",
        "$[11].do.callback[0].say",
        "$[11].do.callback[1]",
        "$[11].do.callback[1].hold",
        "$[11].do.callback[1].to",
        "$[11].do.callback[1].x",
        "$[11].do.callback[2]",
        "$[12].do",
        "$[13].do.cut",
        "$[13].do.drip",
        "$[14].calls_back",
        "$[14].shown_after_queries",
    ]


def in_order(path: str) -> tuple[int, str]:
    """Sort by the number of the switch, and then by its field."""
    number, _, rest = path.removeprefix("$[").partition("]")
    return int(number), rest


@pytest.mark.parametrize(
    ("do", "message"),
    [
        ({"fail": 404}, "expected a whole number from 500 to 599, not 404"),
        ({"hold": "before"}, "a hold needs a name to be released by"),
        ({"delay": 1, "effect": True}, "unknown field; known are"),
        ({"nonsense": "poem"}, "expected one of bad_json, bad_utf8"),
        ({"callback": "never"}, "expected a list of reports, [] for never"),
        ({"callback": ["no"]}, "expected one of failed, in_progress, succeeded, truth, not 'no'"),
    ],
)
def test_a_complaint_says_what_would_do(do: dict[str, object], message: str) -> None:
    """A complaint names what is accepted."""
    assert any(said.startswith(message) for _, said in complaints({"do": do}))


async def test_switches_are_set_shown_and_cleared(world: Client) -> None:
    """PUT replaces the list, GET shows it with counts, DELETE empties it."""
    rule = {"match": {"path": "/cars"}, "do": {"fail": 500}}
    mode = {"resource": "cars", "honours_keys": False}
    await world.switch({"do": {"fail": 503}})
    await world.switch(mode, rule)
    await world.send("POST", "/cars", {"city": "Rome"})

    shown = await world.send("GET", "/world/switches")
    assert shown.json == [mode, rule | {"seen": 1, "hits": 1}]

    assert (await world.send("DELETE", "/world/switches")).json == []
    assert (await world.send("GET", "/world/switches")).json == []
    assert (await world.send("POST", "/cars", {"city": "Rome"})).status == 201


async def test_a_bad_list_changes_nothing(world: Client) -> None:
    """A list with a mistake is refused whole, and the old one stays."""
    await world.switch({"do": {"fail": 503}})

    refused = await world.send("PUT", "/world/switches", [{"do": {"drop": "after"}}, {"do": 7}])

    assert refused.status == 422
    assert [each["path"] for each in refused.json["errors"]] == ["$[1].do"]
    assert (await world.send("POST", "/cars", {"city": "Rome"})).status == 503


@pytest.mark.parametrize(("body", "status"), [(b"{", 400), (b"{}", 422), (b"[" * 100_000, 400)])
async def test_switches_have_to_be_a_list(world: Client, body: bytes, status: int) -> None:
    """What is no JSON gets 400, and what is no list 422."""
    assert (await world.send("PUT", "/world/switches", data=body)).status == status


def test_the_readme_shows_faults_that_exist() -> None:
    """Every `do` in the table of the README can be ordered."""
    readme = Path(examples.world.__file__).with_name("README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| `(\{.*?\})` \|", readme, re.MULTILINE)

    assert len(shown) == 14
    for do in shown:
        switches({"do": json.loads(do)})
