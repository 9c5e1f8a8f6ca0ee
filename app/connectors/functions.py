"""The functions of the sagas directory, by name: loaded once, when the service starts.

The modules of a directory become submodules of a package that exists in this process alone, under a
name that nobody installs. So a ``requests.py`` in the directory is not the installed ``requests``,
neither for the modules in it (which import each other relatively) nor for anybody else. Nothing is
put on ``sys.path``.
"""

import difflib
import importlib
import importlib.machinery
import importlib.util
import inspect
import itertools
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType

KEY = "key"
CALL = "call"
GIVEN_BY_US = frozenset({KEY, CALL})
"""Parameters that are filled by the connector, in a function that has them."""

_PACKAGES = itertools.count()
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFault:
    """Why one module cannot be loaded.

    Attributes:
        path: the module's file.
        message: the error, and the line where it arose if that is known.
    """

    path: Path
    message: str


class InvalidFunctions(Exception):
    """Modules of the sagas directory cannot be loaded; all of them are here.

    Attributes:
        faults: one for each such module, by name.
    """

    def __init__(self, faults: Sequence[LoadFault]) -> None:
        self.faults = tuple(faults)
        lines = "".join(f"\n  {fault.path}: {fault.message}" for fault in self.faults)
        super().__init__(
            f"{len(self.faults)} module(s) with functions cannot be loaded; correct them, or "
            f"begin their names with '_' to leave them out:{lines}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function that a definition may name.

    Attributes:
        name: ``module.function``.
        implementation: what is called, with keyword arguments alone.
        parameters: of its signature, by name.
        is_async: it is an ``async def``.
    """

    name: str
    implementation: Callable[..., object]
    parameters: Mapping[str, inspect.Parameter]
    is_async: bool

    def takes(self, name: str) -> bool:
        """Whether there is a parameter of that name; one behind ``**`` does not count."""
        parameter = self.parameters.get(name)
        return parameter is not None and parameter.kind in _BY_NAME

    def find_fault(self, arguments: Iterable[str]) -> str | None:
        """Why it cannot be called with arguments of these names, all faults in one; or None.

        Publishing may ask the same of the names in a definition.
        """
        given = list(arguments)
        ours = {name for name in GIVEN_BY_US if self.takes(name)}
        takes_any = any(each.kind is each.VAR_KEYWORD for each in self.parameters.values())
        faults = [f"{name!r} is given by the service" for name in given if name in ours]
        faults += [
            f"{name!r} is missing"
            for name, parameter in self.parameters.items()
            if parameter.default is parameter.empty
            and parameter.kind not in _VARIADIC
            and name not in ours
            and not (name in given and parameter.kind in _BY_NAME)
        ]
        faults += [
            f"{name!r} is not a parameter"
            for name in given
            if not self.takes(name) and not takes_any
        ]
        if not faults:
            return None
        return f"the arguments do not fit the function {self.name!r}: {', '.join(faults)}"


class Functions:
    """What ``load_functions`` found.

    Args:
        functions: in any order; their names differ.
    """

    def __init__(self, functions: Iterable[Function] = ()) -> None:
        self._by_name = {function.name: function for function in functions}

    @property
    def names(self) -> frozenset[str]:
        """Every ``module.function`` there is."""
        return frozenset(self._by_name)

    def find(self, name: str) -> Function | None:
        """The function ``module.function``; None if there is none."""
        return self._by_name.get(name)

    def find_fault(self, name: str, arguments: Iterable[str]) -> str | None:
        """Why ``name`` cannot be called with arguments of these names; None if it can."""
        function = self._by_name.get(name)
        if function is not None:
            return function.find_fault(arguments)
        similar = difflib.get_close_matches(name[:200], self._by_name, n=3)
        hint = f"; similar: {', '.join(similar)}" if similar else ""
        return f"there is no function {name[:200]!r} in the sagas directory{hint}"


def load_functions(directory: Path) -> Functions:
    """Import every ``<module>.py`` of a directory, and collect its public functions.

    Left out are modules whose name starts with ``_`` or ``.``, folders, and every other kind of
    file. A directory that does not exist has no functions. Blocks, and runs the modules' code.

    Raises:
        InvalidFunctions: Some modules cannot be imported; none is kept.
    """
    directory = directory.resolve()
    if not directory.is_dir():
        return Functions()
    package = _make_package(directory)
    functions: list[Function] = []
    faults: list[LoadFault] = []
    for path in sorted(directory.glob("*.py")):
        if path.name.startswith(("_", ".")) or not path.is_file():
            continue
        try:
            functions += _functions_of(_load(path, package))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a module may raise anything
            faults.append(LoadFault(path=path, message=_describe(error, path)))
    if faults:
        for name in [name for name in sys.modules if f"{name}.".startswith(f"{package}.")]:
            del sys.modules[name]
        raise InvalidFunctions(faults)
    return Functions(functions)


def _make_package(directory: Path) -> str:
    """A package without code of its own, whose submodules are the directory's modules."""
    spec = importlib.machinery.ModuleSpec(
        f"_amends_functions_{next(_PACKAGES)}", loader=None, is_package=True
    )
    spec.submodule_search_locations = [str(directory)]
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    importlib.invalidate_caches()  # a file may be younger than the last look at the directory
    return spec.name


def _load(path: Path, package: str) -> ModuleType:
    if not path.stem.isidentifier():
        raise ImportError(f"{path.stem!r} is not a Python identifier: rename the file")
    return importlib.import_module(f"{package}.{path.stem}")


def _functions_of(module: ModuleType) -> Iterator[Function]:
    """The public functions that are defined in the module; generators are none.

    A decorated function counts if its decorator says whose it is, as ``functools.wraps`` does.
    """
    *_, module_name = module.__name__.split(".")
    for name, value in vars(module).items():
        is_public = inspect.isfunction(value) and not name.startswith("_")
        if not is_public or value.__module__ != module.__name__:
            continue
        if inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value):
            continue
        yield Function(
            name=f"{module_name}.{name}",
            implementation=value,
            parameters=_parameters_of(value),
            is_async=inspect.iscoroutinefunction(value),
        )


def _parameters_of(function: FunctionType) -> Mapping[str, inspect.Parameter]:
    """By name; annotations are not needed, and may name what only type checkers import."""
    if sys.version_info >= (3, 14):
        from annotationlib import Format  # noqa: PLC0415 - later Pythons alone have it

        return inspect.signature(function, annotation_format=Format.FORWARDREF).parameters
    return inspect.signature(function).parameters


def _describe(error: BaseException, path: Path) -> str:
    """The error in one line, with the last line of the directory's code that led to it."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return text  # names file and line itself
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        at = Path(frame.filename)
        if at.parent == path.parent:
            return f"{text} ({at.name}, line {frame.lineno})"
    return text
