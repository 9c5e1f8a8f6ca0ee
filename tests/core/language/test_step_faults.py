"""Every way for a step to be wrong: its name, its turn, and how it is undone."""

from typing import Any

import pytest

from app.core.errors import Fault
from app.core.faults import FAULTS_MAX
from app.core.language import parse_definition
from tests.core.language.documents import (
    STEP,
    a_document,
    a_read_only_step,
    a_step,
    a_verify,
    faults_of,
    with_value,
    without,
)

NEEDED = "the id of another step: flight, charge"
CONDITION = 'one expression alone, as "${{ input.paid == true }}"'
FLAG = "true or false"


def of_step(**changes: Any) -> list[Fault]:
    """The faults of a document whose middle step has these fields too."""
    return faults_of(with_value(STEP, a_step("hotel", **changes)))


def steps(**needs: list[str]) -> dict[str, Any]:
    """A document of such steps, each with its needs."""
    return a_document(steps=[a_step(step, needs=needed) for step, needed in needs.items()])


@pytest.mark.parametrize(
    ("changes", "path", "message", "accepted"),
    [
        (
            {"needs": "flight"},
            "needs",
            "'flight' is not a list",
            "a list of ids of steps; [] for none",
        ),
        ({"needs": None}, "needs", "null is not a list", "a list of ids of steps; [] for none"),
        ({"needs": [1]}, "needs[0]", "1 is not text", NEEDED),
        (
            {"needs": ["flight", "flihgt"]},
            "needs[1]",
            "no step has the id 'flihgt'; did you mean 'flight'?",
            NEEDED,
        ),
        ({"needs": ["hotel"]}, "needs[0]", "the step 'hotel' cannot wait for itself", NEEDED),
        ({"needs": ["flight"] * 2}, "needs[1]", "'flight' is here twice", "each step once"),
        ({"when": True}, "when", "true is not a condition", CONDITION),
        ({"when": False}, "when", "false is not a condition", CONDITION),
        ({"when": None}, "when", "null is not a condition", CONDITION),
        ({"when": "input.x"}, "when", "'input.x' is not a condition", CONDITION),
        ({"when": "$${{ input.x }}"}, "when", "'$${{ input.x }}' is not a condition", CONDITION),
        ({"when": " ${{ input.x }}"}, "when", "' ${{ input.x }}' is not a condition", CONDITION),
        (
            {"when": "${{ input.x }}${{ input.y }}"},
            "when",
            "'${{ input.x }}${{ input.y }}' is not a condition",
            CONDITION,
        ),
        ({"read_only": 1}, "read_only", "1 is neither true nor false", FLAG),
        ({"irreversible": "no"}, "irreversible", "'no' is neither true nor false", FLAG),
        ({"pivot": None}, "pivot", "null is neither true nor false", FLAG),
        ({"optional": "yes"}, "optional", "'yes' is neither true nor false", FLAG),
        (
            {"read_only": True},
            "compensation",
            "'read_only' and 'compensation' exclude each other: there is nothing to undo",
            "one of: compensation, read_only, irreversible",
        ),
        (
            {"irreversible": True},
            "compensation",
            "'irreversible' and 'compensation' exclude each other: it cannot be undone",
            "one of: compensation, read_only, irreversible",
        ),
        (
            {"pivot": True, "optional": True},
            "optional",
            (
                "'pivot' and 'optional' exclude each other: whether the saga can go back must not "
                "be left open"
            ),
            "one of: pivot, optional",
        ),
        (
            {"default": 1},
            "default",
            "'default' is for a step that the saga can go on without",
            "'optional: true' on the step",
        ),
        (
            {"default": 1, "optional": False},
            "default",
            "'default' is for a step that the saga can go on without",
            "'optional: true' on the step",
        ),
    ],
)
def test_a_fault_of_a_step(changes: dict[str, Any], path: str, message: str, accepted: str) -> None:
    """One thing wrong with a step is one fault."""
    assert of_step(**changes) == [
        Fault(path=f"steps[1].{path}", message=message, accepted=accepted)
    ]


@pytest.mark.parametrize(
    "name",
    [
        *("http", "python", "idempotent", "on_unknown", "completion", "responses"),
        *("timeout", "retry", "key_lifetime", "late_window"),
    ],
)
def test_a_field_of_a_call_is_known_as_that(name: str) -> None:
    """Whoever writes it a level too high is told where it belongs."""
    (fault,) = of_step(**{name: {}})

    assert fault.path == f"steps[1].{name}"
    assert fault.message == (
        f"{name!r} belongs to a call: it stands within 'action' or 'compensation'"
    )


def test_a_step_cannot_be_both_read_only_and_irreversible() -> None:
    """The two ways to have no compensation exclude each other."""
    (fault,) = faults_of(with_value(STEP, a_read_only_step("hotel", irreversible=True)))

    assert fault.path == "steps[1].irreversible"
    assert fault.message == (
        "'read_only' and 'irreversible' exclude each other: there is nothing to undo"
    )


@pytest.mark.parametrize("flags", [{}, {"read_only": False}, {"irreversible": False}])
def test_a_flag_that_is_false_excuses_nothing(flags: dict[str, Any]) -> None:
    """To say that a step is not read-only is to say nothing."""
    (fault,) = faults_of(with_value(STEP, without(a_step("hotel", **flags), "compensation")))

    assert fault.path == "steps[1].compensation"
    assert fault.message == "'compensation' is missing"


def test_a_faulty_flag_has_no_follow_ups() -> None:
    """A step whose author meant to say that there is nothing to undo misses no compensation."""
    step = without(a_step("hotel", read_only="yes"), "compensation")

    assert [fault.path for fault in faults_of(with_value(STEP, step))] == ["steps[1].read_only"]


def test_a_verify_needs_both_answers() -> None:
    """A question has a way to say yes and a way to say no, each a condition."""
    faults = of_step(verify=without(a_verify(none=True), "done"))

    assert faults == [
        Fault(path="steps[1].verify.done", message="'done' is missing", accepted=CONDITION),
        Fault(path="steps[1].verify.none", message="true is not a condition", accepted=CONDITION),
    ]


# ------------------------------------------------------------------------------------- the graph


def test_a_circle_is_one_fault_where_a_step_needs_a_later_one() -> None:
    """It is told in the words of its author, from the need that leads forward in the file."""
    (fault,) = faults_of(steps(a=["c"], b=["a"], c=["b"]))

    assert fault == Fault(
        path="steps[0].needs[0]",
        message="steps wait for one another: 'a' needs 'c' which needs 'b' which needs 'a'",
        accepted="needs that lead back to no step",
    )


def test_a_circle_through_the_order_of_the_file() -> None:
    """A step that needs nothing expressly needs the one before it."""
    document = with_value((*STEP, "needs"), ["charge"])

    (fault,) = faults_of(document)

    assert fault.path == "steps[1].needs[0]"
    assert fault.message == (
        "steps wait for one another: 'hotel' needs 'charge' which needs 'hotel'"
    )


def test_each_circle_is_a_fault() -> None:
    """Two circles are told at once, those that share a step too."""
    apart = faults_of(steps(a=["b"], b=["a"], c=["d"], d=["c"]))
    joined = faults_of(steps(a=["b", "c"], b=["a"], c=["a"]))

    assert [fault.path for fault in apart] == ["steps[0].needs[0]", "steps[2].needs[0]"]
    assert [fault.path for fault in joined] == ["steps[0].needs[0]", "steps[0].needs[1]"]


def test_a_long_circle_is_cut_short() -> None:
    """A message stays readable."""
    names = [f"s{number}" for number in range(100)]
    needs = {name: [names[index - 1]] for index, name in enumerate(names)}

    (fault,) = faults_of(steps(**needs))

    assert fault.path == "steps[0].needs[0]"
    assert len(fault.message) < 700
    assert fault.message.endswith("which needs ... which needs 's0'")


def test_a_circle_through_a_step_without_an_id() -> None:
    """What cannot be named is told by its place."""
    nameless = without(a_step("b"), "id")
    document = a_document(steps=[a_step("a", needs=["c"]), nameless, a_step("c")])

    faults = faults_of(document)

    assert [fault.path for fault in faults] == ["steps[0].needs[0]", "steps[1].id"]
    assert faults[0].message == (
        "steps wait for one another: 'a' needs 'c' which needs steps[1] which needs 'a'"
    )


def test_many_circles_are_counted() -> None:
    """Steps that all need one another get an answer of limited length."""
    names = [f"s{number}" for number in range(40)]
    needs = {name: [other for other in names if other != name] for name in names}

    faults = faults_of(steps(**needs))

    assert len(faults) == FAULTS_MAX + 1


@pytest.mark.parametrize(
    "document",
    [
        steps(a=["b"], b=["a"]),
        steps(a=[], b=["x"]),
        steps(a=[], b=["b"]),
        {"needs": None},
    ],
    ids=["circle", "unknown", "itself", "no list"],
)
def test_where_the_order_is_not_known_nothing_is_said_of_it(document: dict[str, Any]) -> None:
    """References and pivots that would be wrong in some order are no faults of their own."""
    if "steps" not in document:
        document = a_document(steps=[a_step("a"), a_step("b", needs=None), a_step("c")])
    document["steps"][0]["action"]["http"]["json"] = "${{ steps.b.output }}"
    document["steps"][1]["action"]["http"]["json"] = "${{ steps.a.output }}"
    document["steps"].append(a_step("z", needs=[], pivot=True))

    assert len(faults_of(document)) == 1


def test_an_invalid_id_can_be_needed() -> None:
    """What refers to a step by its faulty id is not wrong, too."""
    document = a_document(steps=[a_step("A"), a_step("b", needs=["A"])])

    assert [fault.path for fault in faults_of(document)] == ["steps[0].id"]


def test_an_id_given_twice_makes_no_circle() -> None:
    """The second step of a name needs the first, as any other would."""
    document = a_document(steps=[a_step("a"), a_step("a"), a_step("b")])

    (fault,) = faults_of(document)

    assert fault.message == "'a' is the id of steps[0] already"


# ------------------------------------------------------------------------------------- the pivot


def test_there_is_one_point_of_no_return() -> None:
    """Each further pivot is a fault."""
    document = a_document(steps=[a_step(step, pivot=True) for step in ("a", "b", "c")])

    assert faults_of(document) == [
        Fault(
            path=f"steps[{index}].pivot",
            message="'a' is the pivot already",
            accepted="one pivot, or none",
        )
        for index in (1, 2)
    ]


def test_every_step_lies_on_one_side_of_the_pivot() -> None:
    """Those that do not are named."""
    document = a_document(
        steps=[
            a_step("a"),
            a_step("b", needs=["a"], pivot=True),
            a_step("c", needs=["a"]),
            a_step("d", needs=["c"]),
            a_step("e", needs=["b", "d"]),
        ]
    )

    assert faults_of(document) == [
        Fault(
            path="steps[1].pivot",
            message="neither before nor after the pivot 'b' lie: 'c', 'd'",
            accepted="'needs' that put every other step before the pivot or after it",
        )
    ]


def test_a_pivot_may_lie_in_the_middle_of_a_graph() -> None:
    """Branches before it that join in it, and branches after it, are all on one side."""
    document = a_document(
        steps=[
            a_step("e", needs=["p"]),
            a_step("d", needs=["p"]),
            a_step("p", needs=["a", "b"], pivot=True),
            a_step("b", needs=[]),
            a_step("a", needs=[]),
        ]
    )

    definition = parse_definition(document)

    assert definition.pivot is not None
    assert definition.pivot.id == "p"
    assert definition.graph.order == ("b", "a", "p", "e", "d")
