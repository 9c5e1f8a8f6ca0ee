"""The rules of STYLE.md that a machine can measure and no linter does.

Each test collects every breach and names its place, so that one run shows all there is to do.
"""

import ast
import importlib.metadata
import importlib.util
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60

EMPTY_NAMES = {"common", "helper", "helpers", "misc", "service", "services", "util", "utils"}

# May sleep, because it polls: see its docstring.
WAITING = Path("tests/waiting.py")

# Put together from halves, so that this file does not contain what it forbids.
REGISTRY_HOSTS = [
    "files.python" + "hosted.org",
    "pypi." + "org",
    "pypi." + "python.org",
    "registry." + "npmjs.org",
    "registry." + "yarnpkg.com",
    "deb." + "debian.org",
    "proxy." + "golang.org",
]
MACHINE_PATHS = [
    "/wo" + "rk/",
    "/ro" + "ot/",
    "/opt/" + "pypi",
    "/opt/" + "wheels",
    "/tmp/am" + "venv",
    "/etc/" + "xdg/pip",
]

type Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def files_in_git() -> list[Path]:
    """The files of the repository, also new ones not yet added, relative to its root."""
    # A clone may belong to another user than the one who tests it, as in a container.
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"]
    command += ["--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"git cannot list the files of this folder: {error}")
    paths = sorted({Path(name) for name in listing.stdout.decode().split("\0") if name})
    return [path for path in paths if (ROOT / path).is_file()]


def modules_under(folder: str) -> list[Path]:
    """Every Python file in a folder, relative to the root, whether git knows it or not."""
    return sorted(path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    """The parsed module at a path relative to the root."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), filename=str(path))


def functions_in(path: Path) -> Iterator[Function]:
    """Every function and method of a module, nested ones too."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def sleeps_in(path: Path) -> Iterator[int]:
    """The lines where a module gets hold of `time.sleep` or `asyncio.sleep`."""
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Attribute(attr="sleep", value=ast.Name(id="time" | "asyncio" | "anyio")):
                yield node.lineno
            case ast.ImportFrom(module="time" | "asyncio" | "anyio", names=names):
                if any(alias.name == "sleep" for alias in names):
                    yield node.lineno
            case _:
                pass


def fault_of_docstring(docstring: str | None) -> str | None:
    """Why a docstring is not one sentence, or None if it is."""
    if not docstring:
        return "has no docstring"
    text = " ".join(docstring.split())
    if not text.endswith("."):
        return "its docstring does not end with a full stop"
    if "\n\n" in docstring or re.search(r"[.!?] +[A-Z]", text):
        return "its docstring is more than one sentence"
    return None


def pins_in(name: str) -> dict[str, str]:
    """The exact version of each distribution in one of the lock files."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)(?:\[[a-z,]+\])?==([^ ;\\]+)", text, re.MULTILINE))


def names_of(requirements: list[object]) -> set[str]:
    """The distributions that requirement strings of pyproject.toml name."""
    names = (re.match(r"[a-z0-9-]+", text) for text in requirements if isinstance(text, str))
    return {name.group() for name in names if name}


def listing(faults: list[str]) -> str:
    """Every fault on a line of its own, for pytest would shorten a long list."""
    return "\n".join(["", *faults])


def test_modules_of_the_app_are_short() -> None:
    """A module of the app has at most 500 lines."""
    too_long = [
        f"{path}: {lines} lines"
        for path in modules_under("app")
        if (lines := len((ROOT / path).read_text(encoding="utf-8").splitlines())) > MODULE_LINES_MAX
    ]

    assert too_long == [], listing(too_long)


def test_functions_of_the_app_fit_a_screen() -> None:
    """A function of the app has at most 60 lines, docstring included."""
    too_long = [
        f"{path}:{function.lineno} {function.name}: {lines} lines"
        for path in modules_under("app")
        for function in functions_in(path)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > FUNCTION_LINES_MAX
    ]

    assert too_long == [], listing(too_long)


def test_everything_public_in_the_app_is_documented() -> None:
    """A module of the app, and each public function and class at its top, has a docstring."""
    bare = []
    for path in modules_under("app"):
        tree = tree_of(path)
        if not ast.get_docstring(tree):
            bare.append(str(path))
        bare += [
            f"{path}:{node.lineno} {node.name}"
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and not node.name.startswith("_")
            and not ast.get_docstring(node)
        ]

    assert bare == [], listing(bare)


def test_tests_state_a_behaviour() -> None:
    """A test function has a docstring of one sentence."""
    faults = [
        f"{path}:{function.lineno} {function.name}: {fault}"
        for path in modules_under("tests")
        for function in functions_in(path)
        if function.name.startswith("test_")
        and (fault := fault_of_docstring(ast.get_docstring(function)))
    ]

    assert faults == [], listing(faults)


def test_tests_do_not_sleep() -> None:
    """A test waits for a signal or a condition, never for a guessed time."""
    sleeps = [
        f"{path}:{line}"
        for path in modules_under("tests")
        if path != WAITING
        for line in sleeps_in(path)
    ]

    assert sleeps == [], listing(sleeps)


def test_no_module_is_named_by_nothing() -> None:
    """A module is named by its subject, not `utils` or `common`."""
    nameless = [
        str(path)
        for path in files_in_git()
        if path.suffix == ".py" and not EMPTY_NAMES.isdisjoint(path.with_suffix("").parts)
    ]

    assert nameless == [], listing(nameless)


@pytest.mark.parametrize("needle", REGISTRY_HOSTS + MACHINE_PATHS)
def test_files_name_neither_registries_nor_machines(needle: str) -> None:
    """A file in git names no host of a package registry and no path of one machine."""
    guilty = [str(path) for path in files_in_git() if needle.encode() in (ROOT / path).read_bytes()]

    assert guilty == [], listing(guilty)


def test_the_contract_of_the_core_names_every_third_party() -> None:
    """The import contract that keeps the core pure forbids all that the service installs."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]["contracts"]
    (core,) = (contract for contract in contracts if contract.get("source_modules") == ["*.core"])
    pins = pins_in("runtime.txt")

    missing = [
        name
        for name, distributions in importlib.metadata.packages_distributions().items()
        if any(re.sub("[-_.]+", "-", each).lower() in pins for each in distributions)
        and name.isidentifier()
        and not name.startswith("_")
        # A folder that a wheel left behind by mistake is no module.
        and (spec := importlib.util.find_spec(name)) is not None
        and spec.origin is not None
        and name not in core["forbidden_modules"]
    ]
    assert missing == [], listing(missing)


def test_requirements_hold_names_versions_and_hashes_alone() -> None:
    """A lock file names no URL and no local path, so that any index can serve it."""
    faults = [
        f"{path.relative_to(ROOT)}:{number} {line}"
        for path in sorted((ROOT / "requirements").glob("*.txt"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(r"://| @ |^--|file:|[ =]/", line)
    ]

    assert faults == [], listing(faults)


def test_locks_agree_with_pyproject_and_each_other() -> None:
    """What pyproject.toml asks for is locked, and the tests run on what is shipped."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    runtime, dev, build = (pins_in(f"{name}.txt") for name in ("runtime", "dev", "build"))

    assert names_of(pyproject["project"]["dependencies"]) <= runtime.keys(), "run `make lock`"
    assert names_of(pyproject["dependency-groups"]["dev"]) <= dev.keys(), "run `make lock`"
    assert names_of(pyproject["dependency-groups"]["build"]) <= build.keys(), "run `make lock`"
    assert runtime.items() | build.items() <= dev.items(), "run `make lock`"
