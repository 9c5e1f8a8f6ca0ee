"""Expressions and templates: what they give, what they refuse, and that nothing gets past them."""

import contextlib
import copy
import http.client
import io
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import assume, given, strategies as st

from app.core.expressions import (
    Encoding,
    ExpressionFailed,
    InvalidExpression,
    Scope,
    Template,
    compile_template,
    programs,
    values,
)
from app.core.json_value import JsonValue

ROOTS = frozenset({"input", "steps", "saga", "vars", "secrets", "key", "action", "failure"})

VALUES: dict[str, JsonValue] = {
    "input": {
        "city": "Zürich",
        "count": 3,
        "whole": 3.0,
        "price": 99.5,
        "none": None,
        "yes": True,
        "empty": "",
        "tags": ["b", "a"],
        "box": {"z": 1, "a": [1, 2]},
        "code": "${{ secrets.token }}",
        "huge": 2**64,
        "odd-name": "odd",
        "rows": [{"id": 1, "ok": True}, {"id": 2, "ok": False}, {"id": 3, "ok": True}],
    },
    "steps": {"flight": {"output": {"id": "F1"}, "effect": "done"}},
    "vars": {"travel": "http://travel.example:8080/v1"},
    "secrets": {"token": "hunter2"},
    "key": "K",
}

# More than any evaluation may take, on a machine that does other things too.
SECONDS_MAX = 5.0


def compiled(value: JsonValue, *, encode: Encoding = Encoding.TEXT, path: str = "at") -> Template:
    """A template without faults."""
    template, faults = compile_template(value, roots=ROOTS, path=path, encode=encode)
    assert [str(fault) for fault in faults] == []
    return template


def faults_of(
    value: JsonValue, *, encode: Encoding = Encoding.TEXT, path: str = "at"
) -> list[InvalidExpression]:
    """What is wrong with a template."""
    return compile_template(value, roots=ROOTS, path=path, encode=encode)[1]


def rendered(
    value: JsonValue, *, encode: Encoding = Encoding.TEXT, scope: dict[str, JsonValue] | None = None
) -> JsonValue:
    """What a template gives."""
    return compiled(value, encode=encode).render(Scope(VALUES if scope is None else scope))


def failure_of(
    value: JsonValue, *, encode: Encoding = Encoding.TEXT, scope: dict[str, JsonValue] | None = None
) -> str:
    """Why a template cannot be rendered."""
    with pytest.raises(ExpressionFailed) as caught:
        rendered(value, encode=encode, scope=scope)
    return str(caught.value)


def url_of(template: str, given: JsonValue) -> str:
    """The URL that a template gives for ``input.x``."""
    url = rendered(template, encode=Encoding.URL, scope={"input": {"x": given}})
    assert isinstance(url, str)
    return url


# ------------------------------------------------------------------------------- rendering


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (None, None),
        (5, 5),
        ("plain", "plain"),
        ("${{ input.city }}", "Zürich"),
        ("${{input.count}}", 3),
        ("${{ input.whole }}", 3.0),
        ("${{ input.none }}", None),
        ("${{ input.yes }}", True),
        ("${{ input.box }}", {"a": [1, 2], "z": 1}),
        ("${{ input.huge }}", 2**64),
        ("${{ input.tags[1] }}", "a"),
        ("${{ input['odd-name'] }}", "odd"),
        ("${{ input.`odd-name` }}", "odd"),
        ('${{ steps["flight"].output.id }}', "F1"),
        ("${{ input.count + 1 }}", 4),
        ("${{ size(input.rows) == 3 }}", True),
        ("${{\n  input.count\n  > 2 }}", True),
        ({"a": ["${{ key }}", {"b": "${{ input.count }}"}]}, {"a": ["K", {"b": 3}]}),
    ],
)
def test_an_expression_alone_keeps_its_type(template: JsonValue, expected: JsonValue) -> None:
    """A string that is one expression becomes its value, whatever that is."""
    result = rendered(template)

    assert (result, type(result)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("to ${{ input.city }}!", "to Zürich!"),
        (" ${{ input.count }}", " 3"),
        ("${{ input.count }}${{ input.count }}", "33"),
        ("=${{ input.whole }} ${{ input.price }}", "=3 99.5"),
        ("=${{ input.yes }}", "=true"),
        ("=${{ input.tags }}", '=["b","a"]'),
        ("=${{ input.box }}", '={"a":[1,2],"z":1}'),
        ("=${{ [input.city] }}", '=["Zürich"]'),
        ("=${{ input.huge }}", "=18446744073709551616"),
        ("=${{ input.empty }}", "="),
    ],
)
def test_an_expression_inside_text_is_written_out(template: str, expected: str) -> None:
    """Inside text strings stand as they are, and all else as compact JSON with sorted keys."""
    assert rendered(template) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("$${{ input.city }}", "${{ input.city }}"),
        ("a $${{ b", "a ${{ b"),
        ("$$${{ x }}", "$${{ x }}"),
        ("$${{ ${{ key }} }}", "${{ K }}"),
        ("$ { { }} }", "$ { { }} }"),
        ({"$${{": 1}, {"${{": 1}),
    ],
)
def test_a_doubled_dollar_makes_the_braces_literal(
    template: JsonValue, expected: JsonValue
) -> None:
    """What follows a doubled dollar sign is text, and nothing is evaluated."""
    assert rendered(template) == expected


@given(st.text(alphabet="${}a\\'\"` \n}"))
def test_any_text_can_be_written_with_the_escape(text: str) -> None:
    """Whatever the text, doubling the dollar before double braces gives it back."""
    assert rendered(text.replace("${{", "$${{")) == text


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('{"a": {"b": 1}}', {"a": {"b": 1}}),
        ('"}}"', "}}"),
        ("'}}'", "}}"),
        (r'"\"}}"', '"}}'),
        ("'\\'}}'", "'}}"),
        (r'r"\}}" + "{"', "\\}}{"),
        ("R'}}\\a'", "}}\\a"),
        ('"""a"}}""b"""', 'a"}}""b'),
        ("'''}}\n'}}'''", "}}\n'}}"),
        (r"r'''\'}}'''", r"\'}}"),
        ('"{{" + "${{"', "{{${{"),
        ('size(b"}}")', 2),
        ("{'}}': {'{': '}'}}", {"}}": {"{": "}"}}),
        ("[{'a': 1}, {}][0].a", 1),
    ],
)
def test_braces_and_quotes_of_an_expression_do_not_end_it(source: str, expected: JsonValue) -> None:
    """The scanner knows every form of string literal of CEL, and counts the braces of maps."""
    assert rendered(f"${{{{ {source} }}}}") == expected
    assert rendered(f"${{{{{source}}}}}") == expected


def test_data_is_never_evaluated() -> None:
    """A value that looks like an expression is rendered as it is, alone, in text and in CEL."""
    code = "${{ secrets.token }}"

    assert rendered("${{ input.code }}") == code
    assert rendered("=${{ input.code }}") == f"={code}"
    assert rendered('${{ input.code + "!" }}') == f"{code}!"


def test_what_is_rendered_is_apart_from_the_scope() -> None:
    """Changing a result changes no value that a later expression sees."""
    scope = copy.deepcopy(VALUES)
    result = rendered("${{ input.box }}", scope=scope)
    assert isinstance(result, dict)

    result["z"] = "changed"

    assert scope == VALUES


def test_the_order_of_keys_is_always_the_same() -> None:
    """Loops over objects and objects in results are in the order of keys, in every process."""
    code = (
        "from app.core.expressions import *;"
        "import json;"
        "v = {'o': {c: 1 for c in 'qwertzuiopasdfghjkl'}};"
        "t = lambda e: compile_template(e, roots=frozenset(['o']), path='')[0].render(Scope(v));"
        "print(json.dumps([t('${{ o.map(k, k) }}'), t('${{ o.filter(k, o[k] == 1) }}'),"
        " t('${{ dyn(o) }}'), t('${{ {\"b\": 1, \"a\": o}.map(k, k) }}')]))"
    )
    command = [sys.executable, "-c", code]

    outputs = {subprocess.check_output(command, text=True, timeout=60) for _ in range(3)}

    letters = sorted("qwertzuiopasdfghjkl")
    objects = dict.fromkeys(letters, 1)
    assert outputs == {json.dumps([letters, letters, objects, ["a", "b"]]) + "\n"}


# ------------------------------------------------------------------------------- computing


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('has(input.nope) ? input.nope : "z"', "z"),
        ('input.?nope.orValue("z")', "z"),
        ('input[?"nope"].orValue(1)', 1),
        ('input.count > 2 && "a" in input.tags', True),
        ("input.rows.filter(r, r.ok).map(r, r.id)", [1, 3]),
        ("input.rows.exists(r, r.id == input.count)", True),
        ("input.rows.map(r, r.id > 1, r.id)", [2, 3]),
        ("input.box.map(k, k)", ["a", "z"]),
        ('"a,b".split(",").join("-").upperAscii()', "A-B"),
        ('"a-b".replace("-", "+")', "a+b"),
        ('input.city.matches("^Z.*h$")', True),
        ('base64.encode(bytes("user:" + secrets.token))', "dXNlcjpodW50ZXIy"),
        ("math.ceil(input.price)", 100.0),
        ('string(timestamp("2026-01-31T00:00:00Z") + duration("24h"))', "2026-02-01T00:00:00Z"),
        ("size(input.city)", 6),
    ],
)
def test_cel_computes(source: str, expected: JsonValue) -> None:
    """Operators, loops, defaults and the functions of the extensions work."""
    assert rendered(f"${{{{ {source} }}}}") == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("input.count + 1", 4),
        ("input.whole + 1", 4),
        ("double(input.count) * 1.5", 4.5),
        ("double(input.whole) * 2.0", 6.0),
        ("input.whole == 3 && input.count < 3.5", True),
        ("3u", 3),
        ("input.huge > 1.0", True),
        ("dyn(input.huge)", 2.0**64),
        ("-9223372036854775807 - 1", -(2**63)),
    ],
)
def test_numbers(source: str, expected: JsonValue) -> None:
    """Numbers without a fraction are ints, others doubles, and each stays what CEL made it."""
    result = rendered(f"${{{{ {source} }}}}")

    assert (result, type(result)) == (expected, type(expected))


PATHS = st.lists(st.sampled_from(["a", "b", "c d"]) | st.integers(0, 2), min_size=1, max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "c d"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(JSON, PATHS)
def test_paths_give_what_cel_gives(value: JsonValue, path: list[str | int]) -> None:
    """Following a path without CEL has the same outcome as with it."""
    source = "input" + "".join(f"[{json.dumps(each)}]" for each in path)
    scope: dict[str, JsonValue] = {"input": value}

    def outcome(expression: str) -> JsonValue:
        template = compiled(f"${{{{ {expression} }}}}")
        try:
            return [template.render(Scope(scope))]
        except ExpressionFailed:
            return None

    assert outcome(source) == outcome(f"dyn({source})")


# ------------------------------------------------------------------------------ references


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("${{ steps.flight.output.id }}", {("steps", "flight", "output", "id")}),
        ("${{ steps[\"flight\"] . output['id'] }}", {("steps", "flight", "output", "id")}),
        ("${{ .steps.flight }}", {("steps", "flight")}),
        ("${{ steps.`flight`.effect }}", {("steps", "flight", "effect")}),
        ("a ${{ vars.travel }} ${{ key }}", {("vars", "travel"), ("key",)}),
        ({"x": ["${{ action.output }}"]}, {("action", "output")}),
        ("${{ steps[input.which].output }}", {("steps",), ("input", "which")}),
        ("${{ input.rows[0].id }}", {("input", "rows")}),
        ("${{ input.city.size() > 1 }}", {("input", "city")}),
        ('${{ input.?a.orValue("vars.b") }}', {("input", "a")}),
        ('${{ input.a[?"b"].orValue(vars.c) }}', {("input", "a", "b"), ("vars", "c")}),
        ("${{ has(steps.flight.output.id) }}", {("steps", "flight", "output", "id")}),
        ("${{ input.rows.map(r, r.steps.id + key) }}", {("input", "rows"), ("key",)}),
        ("${{ \"steps.hotel\" + r'vars.x' + '''key''' }}", set()),
        ("$${{ steps.hotel }}", set()),
        ('${{ {"steps": 1, "b": input.x}.steps }}', {("input", "x")}),
        ("${{ input.x in .vars.y }}", {("input", "x"), ("vars", "y")}),
        ("${{ true ? steps : vars }}", {("steps",), ("vars",)}),
        ("${{ nope + steps.hotel.output }}", {("steps", "hotel", "output")}),
        ("${{ steps.a +", set()),
    ],
)
def test_references_are_found_as_written(
    template: JsonValue, expected: set[tuple[str, ...]]
) -> None:
    """Every path from a root variable is found, in faulty expressions too, and none in strings."""
    assert compile_template(template, roots=ROOTS, path="")[0].references == expected


# ------------------------------------------------------------------- faults when compiling


@pytest.mark.parametrize(
    ("source", "message", "accepted"),
    [
        ("nope.x", "line 1, column 5: undeclared reference to 'nope.x'", "action, failure, "),
        ("inptu", "column 1: undeclared reference to 'inptu'; did you mean 'input'?", "input"),
        ("input.a\n + foo", "line 2, column 4: undeclared reference to 'foo'", "input"),
        ("foo(1)", "undeclared reference to 'foo'", "a function of CEL"),
        ("input.a.foo()", "undeclared reference to 'foo'", "a function of CEL"),
        ("input.a +", "line 1, column 10: unexpected end", "a CEL expression"),
        ("input.a ; 1", "column 9: ", "a CEL expression"),
        ('"a', "column 1: ", "a CEL expression"),
        ('1 + "a"', "no matching overload for '_+_' applied to '(int, string)'", "string(x)"),
        ("", "the expression is empty", "a CEL expression"),
        ("+".join("1" * 400), "nested too deeply", "about 30 levels"),
        ("[" * 40 + "]" * 40, "nested too deeply", "about 30 levels"),
        ("input.l.all(x, input.l.all(y, [1].all(z, true)))", "there are 3 loops", "at most 2"),
        ("input.l.map(key, key)", "the loop variable 'key' hides", "another name"),
        ('input.a.matches("(")', "invalid regular expression: missing )", "RE2"),
        ('input.a.matches("(?=a)")', "invalid regular expression", "RE2"),
        ("input.a.matches(input.b)", "column 9: the pattern is not a literal", "a string"),
        ('matches("a", "a" + "b")', "the pattern is not a literal", "a string"),
        ('input.a.replace("a", input.b)', "replace() takes only literals", "a string"),
        ("input.a.join(input.b)", "join() takes only literals", "a string"),
        ('"%s".format([1])', "format() is not supported", "text with ${{ }} in it"),
        ("input.a // all of it", "comments are not supported", "the expression alone"),
        ("google.protobuf.Struct{}", "messages are not supported", "a map"),
        ('"\x01"', "column 2: '\\x01' cannot stand in an expression", "an escape"),
        ('"\ud800"', "'\\ud800' cannot stand in an expression", "an escape"),
    ],
)
def test_a_fault_says_where_what_and_what_would_be_right(
    source: str, message: str, accepted: str
) -> None:
    """Each fault has its place, a message with line and column, and what is accepted."""
    fault = faults_of(f"a ${{{{ {source} }}}}", path="steps[0].action.http.url")[0]

    assert (fault.path, fault.source) == ("steps[0].action.http.url", source.strip())
    assert message in fault.message
    assert accepted in fault.accepted
    assert str(fault).startswith("steps[0].action.http.url: ")


def test_all_faults_are_reported_at_once_each_with_its_path() -> None:
    """One compilation finds what is wrong everywhere, and two faults of one expression as well."""
    template: JsonValue = {
        "a": ["${{ x }}", "fine ${{ key }}", "${{ y + z }}"],
        "odd key": {"b-c": "${{ input."},
        "k${{ key }}": 1,
    }

    found = [(fault.path, fault.message.split(": ")[-1]) for fault in faults_of(template)]

    assert found == [
        ("at.a[0]", "undeclared reference to 'x'"),
        ("at.a[2]", "undeclared reference to 'y'"),
        ("at.a[2]", "undeclared reference to 'z'"),
        ('at["odd key"].b-c', "no }} closes this expression within 1,000 characters"),
        ('at["k${{ key }}"]', "a key cannot hold an expression"),
    ]


@pytest.mark.parametrize(
    "template",
    [
        "${{",
        "${{ input.a",
        "${{ input.a }",
        '${{ {"a": 1 }}',
        "${{ " + "1+" * 50_000 + "1 }}",
        "${{ " + '"\\' * 100_000 + " }}",
        "${{ " + " " * 1_000 + "1 }}",
    ],
)
def test_an_expression_that_does_not_end_is_a_fault(template: str) -> None:
    """A missing end, and one further away than an expression may be long, are found at once."""
    started = time.perf_counter()

    faults = faults_of(template)

    assert [fault.accepted for fault in faults[-1:]] == [
        "}} after the expression, or $${{ for a literal ${{"
    ]
    assert time.perf_counter() - started < SECONDS_MAX


def test_a_template_with_faults_cannot_be_rendered() -> None:
    """Rendering what was compiled with faults names the fault, and does nothing else."""
    template, _ = compile_template({"a": "${{ nope }}"}, roots=ROOTS, path="output")

    with pytest.raises(ExpressionFailed, match=r"output\.a: 'nope': .*undeclared reference"):
        template.render(Scope(VALUES))


@given(st.text(max_size=40), st.sampled_from(list(Encoding)))
def test_no_text_breaks_the_compiler(text: str, encoding: Encoding) -> None:
    """Whatever stands between the braces, it is compiled, or reported as a fault."""
    template, faults = compile_template(
        f"http://a/${{{{ {text} }}}}", roots=ROOTS, path="", encode=encoding
    )

    assert bool(faults) == (type(template.node).__name__ == "_Faulty")


@given(st.text(alphabet="iv.[]()\"'`?:,{}+-*/ \\1rb\n=&|!", max_size=60))
def test_nothing_made_of_the_signs_of_cel_breaks_the_compiler(text: str) -> None:
    """Random expressions are compiled and rendered, or refused with a message."""
    template, _ = compile_template(f"${{{{{text}}}}}", roots=frozenset("iv"), path="")
    with contextlib.suppress(ExpressionFailed):
        template.render(Scope({"i": [1], "v": {"i": "r"}}))


# -------------------------------------------------------------------- failures in rendering


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("steps.fligt.output", "steps has no 'fligt', only 'flight'"),
        ("steps.flight.output.id.x", "steps.flight.output.id is a text and has no 'x'"),
        ("input.none.x", "input.none is null and has no 'x'"),
        ("input.tags[2]", "input.tags has 2 items and no [2]"),
        ("input.tags.x", "input.tags is a list and has no 'x'"),
        ("failure.code", "'failure' is not there, only 'input', 'key', 'secrets', 'steps', 'vars'"),
        ("failure.code == 1", "'failure' is not there, only "),
        ("steps.fligt.output + 1", "steps has no 'fligt', only 'flight'"),
        ("has(steps.x) ? steps.x : steps.y", "steps has no 'y', only 'flight'"),
        ("input.none.x == 1", "input.none is null and has no 'x'"),
        ("input.tags[5] + key", "a list has 2 items and no [5]"),
        ("steps[key].output", "something that it looks up is not there"),
        (
            "input.count + input.price",
            "+ cannot be applied to int, double; double(x) makes a double",
        ),
        ("input.city + 1", "+ cannot be applied to string, int"),
        ("size(input.count)", "size cannot be applied to int"),
        ("input.count ? 1 : 2", "what stands before ? is neither true nor false"),
        ("input.count.map(x, x)", "a loop goes over a list or an object"),
        ("1 / (input.count - 3)", "divide by zero"),
        ("9223372036854775807 + input.count", "integer overflow"),
        ("int(input.city)", "cannot convert string to int"),
        ("1.0 / 0.0", "a number is infinite"),
        ('double("nan")', "a number is infinite, or none at all"),
        ('b"a"', "the result holds a value of type bytes, which is not JSON"),
        ('[timestamp("2026-01-01T00:00:00Z")]', "a value of type timestamp, which is not JSON"),
        ('duration("1s")', "a value of type "),
        ("type(1)", "a value of type "),
        ("{1: 2}", "a key that is not a text"),
        ('{"a": 1, "a": input.count}', "duplicate key"),
        ("input.?nope", 'the result is an optional: end it with .orValue("a default")'),
    ],
)
def test_a_failure_names_the_place_the_expression_and_what_was_missing(
    source: str, reason: str
) -> None:
    """What cannot be evaluated says why, in words that its author can act on."""
    message = failure_of(f"${{{{ {source} }}}}")

    assert message.startswith(f"at: ${{{{ {source} }}}}: ")
    assert reason in message


@pytest.mark.parametrize("template", ["=${{ input.none }}", "${{ input.none }}${{ key }}"])
def test_null_cannot_stand_in_text(template: str) -> None:
    """A null inside text fails, where it would be the word null or nothing at all."""
    assert "it is null" in failure_of(template)


@pytest.mark.parametrize(
    "source",
    [
        "secrets.token.x",
        "secrets.token + 1",
        "steps[secrets.token].x",
        "int(secrets.token)",
        "timestamp(secrets.token)",
        "{secrets.token: 1}[key]",
        "[secrets.token][7]",
    ],
)
def test_a_failure_shows_no_value(source: str) -> None:
    """Messages are stored and shown, so no value gets into them."""
    assert "hunter2" not in failure_of(f"${{{{ {source} }}}}")


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), [float("-inf")], "\ud800", {"\udfff": 1}]
)
@pytest.mark.parametrize("source", ["input", "dyn(input)"])
def test_what_is_not_json_is_not_rendered(value: JsonValue, source: str) -> None:
    """Numbers and characters that JSON cannot hold fail, with and without CEL."""
    assert "at: " in failure_of(f"${{{{ {source} }}}}", scope={"input": value})


def test_deep_values_are_refused() -> None:
    """A value nested deeper than the limit fails, where CEL would crash the process."""
    deep: JsonValue = 1
    for _ in range(900):
        deep = [deep]
    deeper: JsonValue = {"a": deep}

    for source in ("input", "size(input)", "has(input.a)", "input == input"):
        message = failure_of(f"${{{{ {source} }}}}", scope={"input": deeper})

        assert "more than 100 lists and objects lie within one another" in message


def test_a_deep_template_is_a_fault() -> None:
    """A template nested deeper than the limit is refused, without overflowing the stack."""
    deep: JsonValue = "${{ key }}"
    for _ in range(5_000):
        deep = [deep]

    assert [fault.message for fault in faults_of(deep)] == ["the template is nested too deeply"]


# ------------------------------------------------------------------------ abuse of resources

RESULT_TOO_LARGE = "the result is larger than 1,048,576 bytes"
TOO_LONG = "it could take too long over so much data"
BIG = "x" * 1_000_000
LIST: list[JsonValue] = list(range(100_000))


@pytest.mark.parametrize(
    ("source", "given"),
    [
        ("i + i + i + i", BIG),
        ("[i, i, i]", BIG),
        ("size(" + "+".join(["i"] * 30) + ")", BIG),
        ("i.replace('', '" + "y" * 500 + "')", BIG),
        ("i.split('').map(x, x + x)", BIG),
        ("i.split('').join('" + "y" * 500 + "')", BIG),
        ("strings.quote(strings.quote(strings.quote(strings.quote(i))))", '"' * 1_000_000),
        ("i.map(x, i.map(y, i))", LIST),
        ("i.map(x, i + i).map(y, y + y)", LIST),
        ("i.map(x, x)", LIST),
        ("i.map(x, [x, x, x, x]).map(y, [y, y, y, y])", LIST),
        ("i.all(x, !('q' in i))", ["x"] * 100_000),
        ("i.all(x, i == i)", LIST),
        ("i.filter(x, i.exists(y, y == x + 1))", LIST),
        ("i.a.contains(i.b)", {"a": "a" * 1_000_000, "b": "a" * 500_000 + "b"}),
        ("i.a.indexOf(i.b)", {"a": "a" * 1_000_000, "b": "a" * 500_000 + "b"}),
        ("i.matches('" + "[ab]{1000}" * 60 + "c')", "ab" * 50_000),
        (r"i.matches('(\\pL|a)*a(\\pL|b){200}c')", "ab" * 50_000),
        ("i.all(x, 'ab'.matches('(a|b)*a(a|b){900}c'))", LIST),
    ],
)
def test_no_evaluation_takes_long_or_much(source: str, given: JsonValue) -> None:
    """Bombs of memory and time are refused before they go off."""
    template = compile_template(f"${{{{ {source} }}}}", roots=frozenset("i"), path="")[0]
    started = time.process_time()

    with pytest.raises(ExpressionFailed, match=f"{TOO_LONG}|{RESULT_TOO_LARGE}"):
        template.render(Scope({"i": given}))

    assert time.process_time() - started < SECONDS_MAX


@pytest.mark.parametrize(
    ("source", "make"),
    [
        ("i.all(x, !('q' in i))", lambda n: ["x"] * n),
        ("i.map(x, [x, x]).map(y, [y, y])", lambda n: list(range(n))),
        ("size(i.filter(x, i.exists(y, y == x)))", lambda n: list(range(n))),
        ("i.a.contains(i.b)", lambda n: {"a": "a" * n, "b": "a" * (n // 2) + "b"}),
        ("i.matches('(a|b)*a(a|b){900}c')", lambda n: "ab" * n),
        ("i == i", lambda n: [{"id": x, "name": "n" * 20} for x in range(n)]),
        ("size(i.split('').filter(x, x == 'x'))", lambda n: "x" * n),
        ("size(i.replace('x', 'yyyyyyyyyy'))", lambda n: "x" * n),
    ],
)
def test_the_bound_holds_for_the_most_that_is_let_through(
    source: str, make: Callable[[int], JsonValue]
) -> None:
    """The most data (by powers of two) that a costly expression may work on keeps it in time."""
    template = compile_template(f"${{{{ {source} }}}}", roots=frozenset("i"), path="")[0]

    def seconds(size: int) -> float | None:
        scope = Scope({"i": make(size)})
        started = time.process_time()
        try:
            template.render(scope)
        except ExpressionFailed:
            return None
        return time.process_time() - started

    size, taken = 8, seconds(8)
    assert taken is not None
    while size < 1_000_000 and (longer := seconds(size * 2)) is not None:
        size, taken = size * 2, longer

    assert taken < SECONDS_MAX


def test_usual_sizes_are_let_through() -> None:
    """What definitions do every day is far from the limits."""
    items: list[JsonValue] = [{"id": n, "name": "n" * 30, "tags": ["a", "b"]} for n in range(1_000)]
    scope: dict[str, JsonValue] = {"input": {"items": items, "text": "long text " * 1_000}}

    assert rendered("${{ input.items.filter(i, i.id > 997).map(i, i.id) }}", scope=scope) == [
        998,
        999,
    ]
    assert rendered('${{ input.items.exists(i, i.name == "x") }}', scope=scope) is False
    assert rendered("${{ size(input.items) }}", scope=scope) == 1_000
    assert rendered('${{ input.text.contains("xt lo") }}', scope=scope) is True
    assert rendered('${{ input.text.matches("^[a-z ]+$") }}', scope=scope) is True
    assert rendered('${{ input.text.replace(" ", "-").size() }}', scope=scope) == 10_000


def test_many_expressions_share_one_allowance() -> None:
    """A template of many cheap expressions is limited as one dear expression is."""
    large: dict[str, JsonValue] = {"input": {"list": list(range(50_000)), "text": "x" * 10_000}}

    assert RESULT_TOO_LARGE in failure_of(["${{ input.text }}"] * 200, scope=large)
    assert RESULT_TOO_LARGE in failure_of("${{ input.text }}" * 200, scope=large)
    assert TOO_LONG in failure_of(["${{ size(input.list) }}"] * 50, scope=large)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can limit the memory")
def test_the_memory_fence_stops_what_the_bound_lets_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Were the bound ever wrong, an evaluation would fail for want of memory, and the limit go."""
    monkeypatch.setattr(values, "COST_MAX", 10**30)
    before = resource.getrlimit(resource.RLIMIT_AS)
    scope: dict[str, JsonValue] = {"input": {"s": "x" * 100_000, "l": list(range(9_000))}}

    message = failure_of("${{ input.l.map(x, input.s + input.s) }}", scope=scope)

    assert "it needs too much memory" in message
    assert resource.getrlimit(resource.RLIMIT_AS) == before


# ------------------------------------------------------------------------------------ URLs


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("http://a.example", "http://a.example"),
        ("http://a.example/${{ key }}", "http://a.example/K"),
        ("HTTPS://[::1]:443/a?b=${{ input.city }}", "HTTPS://[::1]:443/a?b=Z%C3%BCrich"),
        ("http://a?b=${{ key }}&c[0]=${{ input.count }}", "http://a?b=K&c[0]=3"),
        ("${{ vars.travel }}", "http://travel.example:8080/v1"),
        ("${{ vars.travel }}/f", "http://travel.example:8080/v1/f"),
        (
            "${{ vars.travel }}?q=${{ input.box }}",
            "http://travel.example:8080/v1?q=%7B%22a%22%3A%5B1%2C2%5D%2C%22z%22%3A1%7D",
        ),
        ('${{ vars.travel + "/" }}/f', "http://travel.example:8080/v1/f"),
        ("http://a/x${{ key }}y/${{ input.yes }}", "http://a/xKy/true"),
        ("http://a/$${{", None),
    ],
)
def test_urls(template: str, expected: str | None) -> None:
    """A URL has a literal beginning or a base, and values in it are percent-encoded."""
    if expected is None:
        assert len(faults_of(template, encode=Encoding.URL)) == 1
    else:
        assert rendered(template, encode=Encoding.URL) == expected


@pytest.mark.parametrize(
    "template",
    [
        "",
        "a",
        "/flights/${{ key }}",
        "ftp://a/${{ key }}",
        "http:/${{ key }}",
        "http://${{ key }}",
        "http://${{ key }}/a",
        "http://${{ key }}@a/b",
        "http://a${{ key }}",
        "http://a:80${{ key }}/",
        "http://a:${{ key }}/",
        "http://a.${{ key }}.example/",
        "http://a\\${{ key }}",
        "http://a#${{ key }}",
        "http://u:p@a/${{ key }}",
        "http://a/b c/${{ key }}",
        "http://a/é",
        "http://a/\n${{ key }}",
        "http://a/#${{ key }}",
        "http://a/%${{ key }}",
        "http://a/%4${{ key }}",
        "http://a/../${{ key }}",
        "http://a/%2E/${{ key }}",
        "http://a/{id}",
        "http://a:70000/",
        "http://a..b/",
        "${{ vars.travel }}.evil.example/",
        "${{ vars.travel }}:81/",
        "${{ vars.travel }}@evil/",
        "${{ vars.travel }}${{ key }}",
        "${{ vars.travel }}\\x",
        " ${{ vars.travel }}/",
        "h${{ vars.travel }}/",
    ],
)
def test_a_url_that_an_expression_could_redirect_is_a_fault(template: str) -> None:
    """No expression may stand where it decides on scheme, host or port, but for a base."""
    assert len(faults_of(template, encode=Encoding.URL)) == 1


@pytest.mark.parametrize(
    "base",
    [
        None,
        5,
        "",
        "travel.example",
        "//travel.example",
        "ftp://travel.example",
        "http://",
        "http:///x",
        "http://user@travel.example",
        "http://user:pass@travel.example/",
        "http://good.example@evil.example",
        "http://good.example\\@evil.example",
        "http://travel.example?q=1",
        "http://travel.example/x?",
        "http://travel.example#f",
        "http://travel.example/#",
        "http://travel.example/a b",
        " http://travel.example",
        "http://travel.example\n",
        "http://travel.example\r\nHost: evil",
        "http://travel.example\t",
        "http://travel.example\x00",
        "http://travel.example:٨٠",
        "http://travel.example:99999",
        "http://travel.example:",
        "http://trävel.example",
        "http://travel。example",
        "http://travel.example/%zz",
        "http://travel.example/%2e%2E/x",
        "http://travel.example/a/../b",
        "http://[::1",
        "http://[0]",
        "http://[:::]",
        "javascript://travel.example",
    ],
)
def test_a_bad_base_is_refused(base: JsonValue) -> None:
    """A base must be an absolute http or https URL, and nothing that one client reads otherwise."""
    assert failure_of("${{ vars.b }}/x", encode=Encoding.URL, scope={"vars": {"b": base}})


@pytest.mark.parametrize(
    ("link", "is_good"),
    [
        ("http://travel.example/cancel?token=a%2Fb&x=1", True),
        ("http://travel.example", True),
        ("http://user@travel.example/?x=1", False),
        ("http://travel.example/?x=1#f", False),
        ("http://travel.example/a/../b?x=1", False),
        ("http://travel.example:99999/?x=1", False),
        ("/cancel?token=1", False),
        ("", False),
        (None, False),
    ],
)
def test_a_whole_link_that_a_tool_gave_may_have_a_query(link: JsonValue, *, is_good: bool) -> None:
    """A URL that is one expression is taken as it is, or not at all."""
    scope: dict[str, JsonValue] = {"action": {"output": {"cancel": link}}}
    template = "${{ action.output.cancel }}"
    if is_good:
        assert link == rendered(template, encode=Encoding.URL, scope=scope)
    else:
        assert failure_of(template, encode=Encoding.URL, scope=scope)


@pytest.mark.parametrize("place", ["http://a/${{ input.x }}", "http://a/b?c=${{ input.x }}"])
@pytest.mark.parametrize("given", [None, "", "a\r\nb", "a\x00", "\x7f", "\x85", "\t", "\ud800"])
def test_values_that_no_url_can_hold_are_refused(place: str, given: JsonValue) -> None:
    """Null, empty, control characters and half characters fail instead of being sent."""
    assert failure_of(place, encode=Encoding.URL, scope={"input": {"x": given}})


def test_a_missing_value_in_a_url_fails() -> None:
    """A URL is never rendered without a value that it names."""
    message = failure_of("http://a/${{ input.x }}", encode=Encoding.URL, scope={"input": {}})

    assert "input has no 'x', only nothing" in message


@pytest.mark.parametrize(
    ("template", "given"),
    [
        ("http://a/${{ input.x }}", "."),
        ("http://a/${{ input.x }}", ".."),
        ("http://a/${{ input.x }}/b", ".."),
        ("http://a/.${{ input.x }}/b", "."),
        ("http://a/${{ input.x }}${{ input.x }}?q", "."),
        ("http://a/%2E${{ input.x }}", "."),
        ("http://a/${{ input.x }}%2e/", "."),
    ],
)
def test_dot_segments_are_refused(template: str, given: str) -> None:
    """A value cannot make a segment that clients take as the way up."""
    message = failure_of(template, encode=Encoding.URL, scope={"input": {"x": given}})

    assert "a segment of the path would be '.' or '..'" in message


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a/../b", "a%2F..%2Fb"),
        ("%2e%2e", "%252e%252e"),
        ("..;", "..%3B"),
        ("@evil/", "%40evil%2F"),
        ("\\", "%5C"),
        ("?a#b", "%3Fa%23b"),
        ("a&b=c+d", "a%26b%3Dc%2Bd"),
        ("٣", "%D9%A3"),
        (":80", "%3A80"),
        ("...", "..."),
        (0, "0"),
        (False, "false"),
    ],
)
def test_values_in_a_url_are_percent_encoded(given: JsonValue, expected: str) -> None:
    """Whatever has a meaning in a URL is encoded, and loses it."""
    assert url_of("http://a/${{ input.x }}/b", given) == f"http://a/{expected}/b"


# Control characters are refused; see above.
SENDABLE = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1)


@given(SENDABLE, SENDABLE)
def test_no_value_changes_what_a_url_means(first: str, second: str) -> None:
    """Scheme, host, port, segments and parameters are the template's, and values arrive whole."""
    template = "https://a.example:8443/b/${{ input.x }}/c?d=${{ input.y }}&e=f"
    scope: dict[str, JsonValue] = {"input": {"x": first, "y": second}}
    try:
        url = rendered(template, encode=Encoding.URL, scope=scope)
    except ExpressionFailed:
        assume(False)
    assert isinstance(url, str)

    parts = urlsplit(url)

    assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "a.example:8443", "")
    assert [unquote(each) for each in parts.path.split("/")] == ["", "b", first, "c"]
    assert parse_qsl(parts.query, strict_parsing=True) == [("d", second), ("e", "f")]
    assert url.isascii()
    assert url.isprintable()


@given(st.text(alphabet="htps:/.@\\#?%2eaA[]:0\u0661 \t\r\n;&", max_size=30))
def test_a_base_is_a_base_or_refused(given: str) -> None:
    """What is accepted as a base has a scheme, a host, and nothing that could be read twice."""
    base = "http://" + given
    try:
        url = url_of("${{ input.x }}/y", base)
    except ExpressionFailed:
        return

    parts = urlsplit(url)

    assert parts.hostname
    assert (parts.username, parts.query, parts.fragment) == (None, "", "")
    assert parts.path.endswith("/y")
    assert url == base.removesuffix("/") + "/y"
    assert not {"..", "."} & {*unquote(parts.path).split("/")} or "%2f" in url.lower()


# --------------------------------------------------------------------------------- headers


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("${{ key }}", "K"),
        ("Bearer ${{ secrets.token }}", "Bearer hunter2"),
        ("${{ input.count }}", "3"),
        ("${{ input.box }}", '{"a":[1,2],"z":1}'),
        ("${{ input.empty }}", ""),
        (5, "5"),
        (True, "true"),
        ("a\tb", "a\tb"),
        ({"X-A": "${{ input.whole }}", "X-B": ["${{ key }}"]}, {"X-A": "3", "X-B": ["K"]}),
    ],
)
def test_headers(template: JsonValue, expected: JsonValue) -> None:
    """A header value is always text, also where an expression stands alone."""
    assert rendered(template, encode=Encoding.HEADER) == expected


@pytest.mark.parametrize(
    "template", ["é", "a\nb", "a\r\nX: y", "\x00", "\x7f", None, "€ ${{ key }}"]
)
def test_a_header_that_cannot_be_sent_is_a_fault(template: JsonValue) -> None:
    """Literal characters that no header may have are found when the template is compiled."""
    assert len(faults_of({"X-A": template}, encode=Encoding.HEADER)) == 1


@pytest.mark.parametrize(
    "given", [None, "\r", "\n", "a\r\nX-Evil: 1", "\x00", "\x1b", "\x7f", "é", "\u2028", "\ud800"]
)
def test_values_that_no_header_can_hold_are_refused(given: JsonValue) -> None:
    """Line ends, other control characters and what is not ASCII fail instead of being sent."""
    assert failure_of("a${{ input.x }}", encode=Encoding.HEADER, scope={"input": {"x": given}})


@given(st.text() | st.text(alphabet="\r\n\t :aX-\x00\x0b\x85\u2028"))
def test_no_value_adds_a_header(given: str) -> None:
    """However a value is made, a message has the headers of its template, and no body."""
    try:
        header = rendered("a${{ input.x }}b", encode=Encoding.HEADER, scope={"input": {"x": given}})
    except ExpressionFailed:
        return
    message = io.BytesIO(f"X-A: {header}\r\nX-B: c\r\n\r\n".encode("ascii"))

    headers = http.client.parse_headers(message)

    assert headers.items() == [("X-A", f"a{given}b"), ("X-B", "c")]


# ----------------------------------------------------------------------- sharing and speed


def test_programs_are_compiled_once() -> None:
    """The same source for the same roots is compiled once, however often it is used."""
    programs.compile_source.cache_clear()

    for _ in range(5):
        compiled(["${{ input.count + 41 }}", "a ${{ input.count + 41 }}"])
    hits, misses, limit, _ = programs.compile_source.cache_info()

    assert (hits, misses) == (9, 1)
    assert limit is not None


def test_other_roots_are_another_program() -> None:
    """A program compiled for roots that has a variable is not used for roots that lack it."""
    assert faults_of("${{ action.key }}") == []
    assert compile_template("${{ action.key }}", roots=frozenset({"key"}), path="")[1] != []


def test_templates_are_shared_by_threads() -> None:
    """Threads that render the same templates at once each get the result of their own scope."""
    template = compiled(
        {
            "sum": "${{ input.list.map(x, x + input.n) }}",
            "path": "${{ input.n }}",
            "text": "n=${{ input.n }}",
        }
    )
    gate = threading.Barrier(8)

    def render(number: int) -> None:
        gate.wait()
        for turn in range(number, number + 100):
            scope = Scope({"input": {"list": list(range(20)), "n": turn}})
            expected = {"sum": [x + turn for x in range(20)], "path": turn, "text": f"n={turn}"}
            assert template.render(scope) == expected

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(render, range(0, 8_000, 1_000)))

    assert results == [None] * 8


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can limit the memory")
def test_threads_leave_the_memory_limit_as_it_was() -> None:
    """The limit is put back also where several threads set it at once."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    template = compiled("${{ size(input.list.map(x, x + 1)) }}")
    scope = Scope({"input": {"list": list(range(600))}})

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: template.render(scope), range(24)))

    assert results == [600] * 24
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_a_template_gives_the_same_every_time() -> None:
    """Rendering twice gives equal results, down to the order of keys."""
    template = compiled({"b": "${{ input }}", "a": "${{ {'z': input.box, 'c': 1} }}"})

    first, second = (json.dumps(template.render(Scope(VALUES))) for _ in range(2))

    assert first == second
