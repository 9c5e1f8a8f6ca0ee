"""Functions of the sagas directory are found by name; faults of its modules are told at once."""

import asyncio
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

import pytest

from app import functions as documentation
from app.connectors import Function, InvalidFunctions, PythonConnector, load_functions
from app.core.observation import Answered, Claim, Claimed
from tests.connectors.calls import KEY, a_function_call
from tests.connectors.python_tool import a_function


@pytest.fixture(autouse=True)
def forget_modules() -> Iterator[None]:
    """What a test loads is gone after it."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("_amends_functions_"):
            del sys.modules[name]


def write(directory: Path, **modules: str) -> None:
    """Write modules, by name."""
    for name, code in modules.items():
        (directory / f"{name}.py").write_text(dedent(code), encoding="utf-8")


def outcome_of(function: Function | None) -> object:
    """Call a function without arguments."""
    assert function is not None
    return function.implementation()


def test_public_functions_are_found(tmp_path: Path) -> None:
    """Sync and async functions are named ``module.function``."""
    write(
        tmp_path,
        bookings="""
            def book(city): return city
            async def cancel(city): return None
        """,
        cars="def rent(): return 'car'",
    )

    functions = load_functions(tmp_path)

    assert functions.names == {"bookings.book", "bookings.cancel", "cars.rent"}
    book, cancel = functions.find("bookings.book"), functions.find("bookings.cancel")
    assert book is not None
    assert cancel is not None
    assert (book.is_async, cancel.is_async) == (False, True)
    assert outcome_of(functions.find("cars.rent")) == "car"


def test_what_is_no_function_of_the_module_is_left_out(tmp_path: Path) -> None:
    """Private names, imports, classes, generators and values cannot be named."""
    write(
        tmp_path,
        tools="""
            import functools
            from json import dumps
            from os.path import join as public_alias
            from .others import helper

            def _private(): pass
            def generate(): yield 1
            async def generate_async(): yield 1
            class Tool: pass
            value = 1
            closure = lambda: 1
            partial = functools.partial(closure)
            @functools.wraps(_private)
            def wrapped(): pass
        """,
        others="def helper(): pass",
    )

    functions = load_functions(tmp_path)

    assert functions.names == {"tools.closure", "tools.wrapped", "others.helper"}


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    """YAML, private modules, folders and an ``__init__`` are neither loaded nor run."""
    write(tmp_path, _shared="raise SystemExit", __init__="raise SystemExit", cars="def rent(): ...")
    (tmp_path / "trip.yaml").write_text("name: trip")
    (tmp_path / ".#cars.py").write_text("raise SystemExit")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "notes").mkdir()
    write(tmp_path / "notes", inside="raise SystemExit")

    functions = load_functions(tmp_path)

    assert functions.names == {"cars.rent"}


def test_modules_import_each_other_relatively(tmp_path: Path) -> None:
    """A module finds its neighbours by a dot; each is run once, whoever comes first."""
    write(
        tmp_path,
        a_trips="from . import z_money\nfrom ._rate import RATE\ndef price(): return z_money.RUNS",
        z_money="RUNS = []\nRUNS.append(1)\ndef cents(): return RUNS",
        _rate="RATE = 2",
    )

    functions = load_functions(tmp_path)

    assert outcome_of(functions.find("a_trips.price")) == [1]
    assert outcome_of(functions.find("a_trips.price")) is outcome_of(
        functions.find("z_money.cents")
    )


def test_installed_packages_keep_their_names(tmp_path: Path) -> None:
    """A module may be called like an installed one, and neither hides the other."""
    write(tmp_path, json="import json\ndef dump(): return json.dumps([1])")
    path = list(sys.path)

    functions = load_functions(tmp_path)

    assert outcome_of(functions.find("json.dump")) == "[1]"
    assert sys.modules["json"] is json
    assert sys.path == path


def test_neighbours_are_not_found_absolutely(tmp_path: Path) -> None:
    """Without the dot an import means an installed package."""
    write(tmp_path, bookings="import cars", cars="")

    with pytest.raises(InvalidFunctions, match=r"No module named 'cars' \(bookings.py, line 1\)"):
        load_functions(tmp_path)


def test_directories_do_not_share_modules(tmp_path: Path) -> None:
    """Two directories may have modules of the same name."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, cars=f"def rent(): return {name!r}")

    loaded = [load_functions(tmp_path / name) for name in ("first", "second")]

    assert [outcome_of(each.find("cars.rent")) for each in loaded] == ["first", "second"]


def test_no_directory_no_functions(tmp_path: Path) -> None:
    """A directory that does not exist has no functions, and that is no error."""
    assert load_functions(tmp_path / "nowhere").names == frozenset()


def test_all_faulty_modules_are_named(tmp_path: Path) -> None:
    """Every module that cannot be loaded is told, with file, line and error."""
    write(
        tmp_path,
        absent="\nimport not_installed_anywhere",
        broken="def book(:",
        exits="import sys\nsys.exit(3)",
        fine="def book(): ...",
        indirect="from ._helper import x",
        _helper="\n\nx = 1 / 0",
    )
    (tmp_path / "not-a-name.py").touch()

    with pytest.raises(InvalidFunctions) as raised:
        load_functions(tmp_path)

    faults = {fault.path.name: fault.message for fault in raised.value.faults}
    assert list(faults) == ["absent.py", "broken.py", "exits.py", "indirect.py", "not-a-name.py"]
    assert faults["absent.py"] == (
        "ModuleNotFoundError: No module named 'not_installed_anywhere' (absent.py, line 2)"
    )
    assert faults["broken.py"].startswith("SyntaxError: ")
    assert faults["broken.py"].endswith("(broken.py, line 1)")
    assert faults["exits.py"] == "SystemExit: 3 (exits.py, line 2)"
    assert faults["indirect.py"] == "ZeroDivisionError: division by zero (_helper.py, line 3)"
    assert "rename the file" in faults["not-a-name.py"]
    assert all(str(fault.path) in str(raised.value) for fault in raised.value.faults)


def test_nothing_stays_of_a_failed_load(tmp_path: Path) -> None:
    """After a fault no module of the directory is left behind."""
    before = set(sys.modules)
    write(tmp_path, fine="from . import _also", _also="", wrong="1 / 0")

    with pytest.raises(InvalidFunctions):
        load_functions(tmp_path)

    assert set(sys.modules) - before == set()


def test_functions_know_their_module(tmp_path: Path) -> None:
    """What looks a module up by its name, as dataclasses and type hints do, finds it."""
    write(
        tmp_path,
        trips="""
            from __future__ import annotations
            from dataclasses import dataclass
            import typing

            @dataclass
            class Trip:
                next: Trip | None = None

            def hints(): return typing.get_type_hints(Trip)["next"]
        """,
    )

    functions = load_functions(tmp_path)

    assert "Trip" in repr(outcome_of(functions.find("trips.hints")))


def plain(city, seats=1): ...  # type: ignore[no-untyped-def] # noqa: ANN001, D103
def keyed(city, *, key): ...  # type: ignore[no-untyped-def] # noqa: ANN001, D103
def told(call): ...  # type: ignore[no-untyped-def] # noqa: ANN001, D103
def any_name(city, **rest): ...  # type: ignore[no-untyped-def] # noqa: ANN001, ANN003, D103
def positional(city, /, seats=1): ...  # type: ignore[no-untyped-def] # noqa: ANN001, D103
def variadic(*cities, seats): ...  # type: ignore[no-untyped-def] # noqa: ANN001, ANN002, D103
def optional_positional(city=1, /, **rest): ...  # type: ignore[no-untyped-def] # noqa: ANN001, ANN003, D103


@pytest.mark.parametrize(
    ("function", "given", "faults"),
    [
        (plain, ["city"], None),
        (plain, ["city", "seats"], None),
        (plain, ["seats"], "'city' is missing"),
        (
            plain,
            ["town", "x"],
            "'city' is missing, 'town' is not a parameter, 'x' is not a parameter",
        ),
        (plain, ["city", "key"], "'key' is not a parameter"),
        (keyed, ["city"], None),
        (keyed, ["city", "key"], "'key' is given by the service"),
        (told, [], None),
        (told, ["call"], "'call' is given by the service"),
        (any_name, ["city", "key", "call", "whatever"], None),
        (positional, ["city"], "'city' is missing, 'city' is not a parameter"),
        (variadic, ["seats"], None),
        (variadic, ["seats", "cities"], "'cities' is not a parameter"),
        (optional_positional, ["city"], None),
    ],
)
def test_arguments_that_do_not_fit(
    function: Callable[..., object], given: list[str], faults: str | None
) -> None:
    """All that is wrong with the names of arguments is told, as Python would see it."""
    made = a_function(function, name="tool.act")
    ours = {name for name in ("key", "call") if made.takes(name)}

    found = made.find_fault(given)

    expected = (
        None if faults is None else f"the arguments do not fit the function 'tool.act': {faults}"
    )
    assert found == expected
    if not ours & set(given):
        try:
            inspect.signature(function).bind(**dict.fromkeys([*given, *ours]))
        except TypeError:
            assert found is not None
        else:
            assert found is None


def test_similar_names_are_offered(tmp_path: Path) -> None:
    """A function that does not exist is told with those that may have been meant."""
    write(tmp_path, bookings="def book_flight(): ...")
    functions = load_functions(tmp_path)

    fault = functions.find_fault("bookings.bok_flight", [])

    assert fault == (
        "there is no function 'bookings.bok_flight' in the sagas directory; "
        "similar: bookings.book_flight"
    )
    assert functions.find_fault("bookings.book_flight", []) is None


async def test_documented_example_works(tmp_path: Path) -> None:
    """The function that ``app.functions`` shows does what is said of it."""
    shown = (documentation.__doc__ or "").partition("# sagas/bookings.py\n")[2]
    code = shown.partition("**What is called.**")[0]
    write(tmp_path, bookings=code)
    functions = load_functions(tmp_path)
    function = functions.find("bookings.book_flight")
    assert function is not None
    answers = [
        SimpleNamespace(sold_out=False, is_overloaded=False, booking="F1"),
        SimpleNamespace(sold_out=True, is_overloaded=False),
        SimpleNamespace(sold_out=False, is_overloaded=True),
    ]
    keys: list[str] = []

    class Airline:
        async def book(self, city: str, *, idempotency_key: str) -> object:
            keys.append(idempotency_key)
            return answers.pop(0)

    inspect.unwrap(function.implementation).__globals__["airline"] = Airline()
    connector = PythonConnector(functions)

    call = a_function_call("bookings.book_flight", arguments='{"city": "Rome"}')
    observed = [await connector.attempt(call) for _ in range(3)]

    assert observed == [
        Answered(status=200, body={"id": "F1"}, body_bytes=11),
        Claimed(claim=Claim.REFUSED, message="no seat to Rome"),
        Claimed(claim=Claim.RETRY, message="the airline is busy", retry_after_seconds=30.0),
    ]
    assert keys == [str(KEY)] * 3
    await connector.close()


def test_loaded_async_function_runs(tmp_path: Path) -> None:
    """What is loaded is the function itself."""
    write(tmp_path, cars="async def rent(): return 'car'")

    function = load_functions(tmp_path).find("cars.rent")

    assert function is not None
    assert inspect.iscoroutinefunction(function.implementation)
    assert asyncio.run(function.implementation()) == "car"
