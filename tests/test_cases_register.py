"""The register of failures of other systems, ``cases.toml``: it is whole, and its tests exist.

The tests that are named after a case are found wherever they stand; others are named in full.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent

IDS = {
    "durable_engines": """
        b01 b02 b03 b04 b05 b06 b07 b08 b09 b10 b13 b14 b16 b18 b19 b20 b21 b23 b24 b25 b26 b27 b29
        b30 b31 b32 b33 b34 b35 b36 b37 b39 b40 b41 b42 b43 b44 b45 b46 b48 b49 b51 b52 b53 b55 b56
    """,
    "saga_coordinators": """
        b1 b2 b3 b5 b6 b7 b8 b9 b10 b12 b13 b14 b15 b16 b17 b20 b21 b22 b23 b24 b26 b27 b28 b29 b31
        b33 b34 b36 b37 b38 b39 b40 b41 b43 b44 b45 b46 b47 b49 b50 b51
    """,
    "agents": """
        b1 b2 b3 b4 b5 b7 b9 b10 b11 b12 b13 b14 b15 b16 b17 b18 b19 b20 b21 b22 b23 b24 b25 b27
        b28 b29 b29b b29c b30 b31 b32 b34 b35 b37 b38 b39 b41b b42 b44 b45 b46 b47
        g1 g2 g3 g4 g5 g6 g7 h1 h2 h3 h4 h5
    """,
}
"""Every case that was collected. The lists are not consecutive: some were dropped, or merged."""

_P0 = """
    b01 b02 b03 b05 b06 b07 b10 b13 b16 b19 b20 b21 b29 b30 b31 b33 b34 b35 b40 b41 b43 b51 b56
"""
P0 = {f"durable_engines.{case}" for case in _P0.split()}
"""Those without which nothing may be released."""

NAMED = re.compile(rf"test_({'|'.join(IDS)})_([a-z]\d+[a-z]?)_.+")
"""How a test is named that is about a case."""


@cache
def register() -> dict[str, dict[str, Any]]:
    """What is said of each case, by its name."""
    read = tomllib.loads((TESTS / "cases.toml").read_text(encoding="utf-8"))
    return {f"{file}.{case}": said for file, cases in read.items() for case, said in cases.items()}


@cache
def nodes() -> frozenset[str]:
    """All tests, as the register names them."""
    return frozenset(
        "::".join((path.relative_to(TESTS).as_posix(), *name))
        for path in TESTS.rglob("test_*.py")
        for name in _tests_in(ast.parse(path.read_text(encoding="utf-8")).body)
    )


def _tests_in(body: list[ast.stmt]) -> Iterator[tuple[str, ...]]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name.startswith("test_"):
                    yield (name,)
            case ast.ClassDef(name=name) if name.startswith("Test"):
                for inner in _tests_in(node.body):
                    yield (name, *inner)
            case _:
                pass


def test_every_case_is_in_the_register() -> None:
    """Each case that was collected is there, and no other."""
    collected = {f"{file}.{case}" for file, cases in IDS.items() for case in cases.split()}

    assert collected == set(register())


def test_every_case_says_what_is_made_of_it() -> None:
    """A case has tests, or a reason why there are none, or both where the tests leave some out."""
    for case, said in register().items():
        assert said.keys() <= {"what", "p0", "tests", "reason"}, case
        assert said["what"], case
        assert said.get("tests") or said.get("reason"), case
        assert len(said.get("tests", ())) == len(set(said.get("tests", ()))), case


def test_what_must_not_be_missing_is_tested() -> None:
    """Each case without which nothing may be released has a test."""
    marked = {case for case, said in register().items() if said.get("p0")}

    assert marked == P0
    assert [] == [case for case in sorted(P0) if not register()[case].get("tests")]


def test_named_tests_exist() -> None:
    """A test that the register names is there, under that name."""
    missing = [
        f"{case}: {test}"
        for case, said in register().items()
        for test in said.get("tests", ())
        if test not in nodes()
    ]

    assert [] == missing


def test_tests_of_cases_are_in_the_register() -> None:
    """A test that is named after a case is one of that case's tests."""
    unknown = []
    for node in sorted(nodes()):
        name = node.rpartition("::")[2]
        if name.startswith(tuple(f"test_{file}_" for file in IDS)):
            match = NAMED.fullmatch(name)
            case = ".".join(match.groups()) if match else "no case"
            if node not in register().get(case, {}).get("tests", ()):
                unknown.append(node)

    assert [] == unknown
