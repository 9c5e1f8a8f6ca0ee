"""Compiles and runs expressions. Only this module knows CEL.

``cel-expr-python`` was measured before it was chosen, and some of what follows is owed to it: a
runtime error is a *value* of type ERROR; results are read with ``value()``, level by level, for
``plain_value()`` crashes the process when memory is short; memory is unbounded; and the order of
keys is random. For this order a second environment has the method ``in_order``, which gives the
keys of an object in order and a list as it is. The source is checked as it was written, so that
columns in messages are right, and run with ``.in_order()`` before each ``map`` and ``filter``.
"""

import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cel_expr_python import cel
from cel_expr_python.ext import ext_encoders, ext_math, ext_optional, ext_strings

from app.core.expressions.source import Names, Reading, Size, SourceFault, read
from app.core.expressions.values import (
    Allowance,
    Missing,
    Unfit,
    check_depth,
    copy,
    follow,
    measure_text,
    take,
)
from app.core.faults import did_you_mean, listed
from app.core.json_value import JsonValue

if sys.platform == "linux":
    import resource

MEMORY_BYTES_MAX = 268_435_456
"""What an evaluation with a loop or a ``+`` may take. Measured: stops attacks within 0.3 s."""

_RESULT_COST = 5_000  # Nanoseconds for a value of a result, from CEL to Python.
_FENCE_COST = 20_000_000  # Below it nothing takes 50 MB, and the fence costs 20 to 100 us.
_PROGRAMS_MAX = 2_048  # Some 100 definitions in use; a miss costs 0.3 ms.
_ENVIRONMENTS_MAX = 64
_FAULTS_MAX = 5  # The parser repeats itself.
_FENCE = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A compiled expression, shared by all threads; one that is only a path needs no CEL to run."""

    source: str
    reading: Reading
    environment: cel.Env
    expression: cel.Expression | None

    def run(self, values: Mapping[str, JsonValue], allowance: Allowance) -> JsonValue:
        """Evaluate it.

        Raises:
            Unfit: there is no value, or none that is JSON and within limits.
        """
        if self.expression is None:
            assert self.reading.selectors is not None, self.source
            return copy(follow(values, self.reading.selectors), allowance)
        data, sizes = self._take(values)
        cost = self.reading.cost(sizes)
        allowance.spend_cost(cost)
        needs_fence = self.reading.has_loop_or_sum and cost > _FENCE_COST
        try:
            with _memory_fence(needed=needs_fence):
                result = self.expression.eval(self.environment.Activation(data))
            if result.type() == cel.Type.ERROR:
                raise Unfit(self._explain(str(result.value()), values))
            return _from_cel(result, allowance, 0)
        except (MemoryError, SystemError):
            raise Unfit("it needs too much memory: name less data") from None
        except (RuntimeError, TypeError, ValueError) as error:
            raise Unfit(self._explain(str(error), values)) from None

    def _take(
        self, values: Mapping[str, JsonValue]
    ) -> tuple[dict[str, JsonValue], dict[Names, Size]]:
        """Take of the values what the source names, and the size of each."""
        sizes: dict[Names, Size] = {}
        wanted = dict.fromkeys(names for names, _ in self.reading.references)
        data = {
            root: take(values[root], (root,), [each for each in wanted if each[0] == root], sizes)
            for root in dict.fromkeys(names[0] for names in wanted)
            if root in values
        }
        return data, sizes

    def _explain(self, error: str, values: Mapping[str, JsonValue]) -> str:
        """Say in words, and without values, what the runtime found."""
        key = re.search(r'Key not found in map : "(.*)"', error, re.DOTALL)
        if key or "Applying SELECT" in error or "No value with name" in error:
            return self._explain_missing(key[1] if key else None, values)
        if overload := re.search(r"No matching overloads found : (.*)", error):
            return _explain_overload(overload[1])
        if index := re.search(r"Index error: index=(-?\d+) size=(\d+)", error):
            return f"a list has {index[2]} items and no [{index[1]}]"
        if "Iteration budget" in error:
            return "its loops take more than 10,000 turns"
        if "return value to a Python type" in error:
            return 'the result is an optional: end it with .orValue("a default")'
        return re.sub(r"^[A-Z_]+: ", "", error).split("\n")[0]

    def _explain_missing(self, key: str | None, values: Mapping[str, JsonValue]) -> str:
        found: list[Missing] = []
        for names, _ in self.reading.references:
            try:
                follow(values, names)
            except Missing as missing:
                found.append(missing)
        # Of several, the one that CEL stumbled over: others may stand in `has()`.
        found.sort(key=lambda missing: missing.name != key)
        return str(found[0]) if found else "something that it looks up is not there"


@lru_cache(maxsize=_PROGRAMS_MAX)
def compile_source(
    source: str, roots: frozenset[str]
) -> tuple[Program | None, Reading, tuple[SourceFault, ...]]:
    """Compile one source.

    Returns:
        The program, or None if there are faults; what could be read of the source; the faults.
    """
    reading, faults = read(source, roots)
    if faults:
        return None, reading, tuple(faults)
    checking, running = _environments(roots)
    try:
        checking.compile(source)
        for pattern in reading.patterns:
            trial = checking.compile(f"''.matches({pattern})").eval()
            if trial.type() == cel.Type.ERROR:
                reason = str(trial.value()).partition(": ")[2]
                return None, reading, (SourceFault(reason, "an RE2 regular expression"),)
        expression = None if reading.selectors else running.compile(reading.rewritten)
    except RuntimeError as error:
        return None, reading, tuple(_find_faults(str(error), reading, roots))
    program = Program(source=source, reading=reading, environment=running, expression=expression)
    return program, reading, ()


@lru_cache(maxsize=_ENVIRONMENTS_MAX)
def _environments(roots: frozenset[str]) -> tuple[cel.Env, cel.Env]:
    """The environment to check sources in, and the one to run them in."""
    variables = dict.fromkeys(sorted(roots), cel.Type.DYN)
    extensions = [
        ext_strings.ExtStrings(),
        ext_math.ExtMath(),
        ext_optional.ExtOptional(),
        ext_encoders.ExtEncoders(),
    ]
    # One overload a type: CEL matches none at run time that is declared for any type.
    overloads = [
        _overload("in_order_list", cel.Type.LIST, list),
        _overload("in_order_map", cel.Type.MAP, _in_order),
    ]
    functions = [cel.FunctionDecl("in_order", overloads)]
    checking = cel.NewEnv(variables=variables, extensions=extensions)
    return checking, cel.NewEnv(variables=variables, extensions=extensions, functions=functions)


def _overload(name: str, of: cel.Type, function: Callable[..., list[object]]) -> cel.Overload:
    return cel.Overload(
        name, return_type=cel.Type.LIST, parameters=[of], is_member=True, impl=function
    )


def _in_order(items: Mapping[object, object]) -> list[object]:
    return sorted(items, key=lambda key: (type(key).__name__, key))


def _find_faults(error: str, reading: Reading, roots: frozenset[str]) -> Iterator[SourceFault]:
    """Take a message of CEL's compiler apart, which lists all that it found."""
    found = re.findall(r"ERROR: <input>:(\d+):(\d+): (.*)", error)
    for line, column, message in found[:_FAULTS_MAX]:
        text = re.sub(r" \(in container ''\)| \[INVALID_ARGUMENT\]| expecting .*", "", message)
        text = re.sub(
            r"Syntax error: (?:mismatched|extraneous|no viable alternative at) input",
            "unexpected",
            text,
        ).replace("'<EOF>'", "end")
        accepted = "a CEL expression"
        if undeclared := re.search(r"undeclared reference to '\.?([^.']+)", text):
            name = undeclared[1]
            if name in reading.calls:
                accepted = "a function of CEL, or of its extensions (see the documentation)"
            else:
                text += did_you_mean(name, sorted(roots))
                accepted = listed(sorted(roots))
        elif "no matching overload" in text:
            accepted = "values of types that go together; double(x), int(x), string(x) convert"
        yield SourceFault(f"line {line}, column {column}: {text}", accepted)
    if not found and "recursion" in error:
        yield SourceFault("it is nested too deeply, or too long a chain", "about 30 levels")
    elif not found:
        yield SourceFault(re.sub(r"^[A-Z_]+: ", "", error).split("\n")[0], "a CEL expression")


def _explain_overload(overload: str) -> str:
    """Say why an operator or function cannot be applied; CEL names it ``_+_(int64, double)``."""
    if overload == "<jump_condition>":
        return "what stands before ? is neither true nor false"
    if overload == "<iter_range>" or ".in_order()" in overload:
        return "a loop goes over a list or an object, and this is neither"
    name, _, types = overload.rstrip(")").rpartition("(")
    if not name or name.startswith("("):
        return f"{overload} cannot be called on such a value"
    types = re.sub(r"\b(u?int)64\b", r"\1", types).replace("null_type", "null")
    hint = (
        "; double(x) makes a double of an int" if {*types.split(", ")} == {"int", "double"} else ""
    )
    return f"{name.strip('_')} cannot be applied to {types}{hint}"


def _from_cel(value: cel.Value, allowance: Allowance, depth: int) -> JsonValue:
    """Make JSON of a result."""
    allowance.spend_cost(_RESULT_COST)
    check_depth(depth)
    kind = value.type().name().partition("<")[0]
    if kind not in {"NULL", "BOOL", "INT", "UINT", "DOUBLE", "STRING", "LIST", "MAP"}:
        hint = '.orValue("a default") ends an optional, string(x) makes text of most others'
        raise Unfit(f"the result holds a value of type {kind.lower()}, which is not JSON; {hint}")
    plain = value.value()
    match plain:
        case list():
            return [_from_cel(each, allowance, depth + 1) for each in plain]
        case dict():
            if not all(isinstance(key, str) for key in plain):
                raise Unfit("an object in the result has a key that is not a text")
            allowance.spend(sum(map(measure_text, plain)))
            return {key: _from_cel(plain[key], allowance, depth + 1) for key in sorted(plain)}
        case _:
            return copy(plain, allowance)


@contextmanager
def _memory_fence(*, needed: bool) -> Iterator[None]:
    """Limit meanwhile what the process may allocate, on systems that can (Linux).

    The limit is the whole process's, so one thread at a time sets it, and code of other threads
    that allocates without the interpreter's lock shares the headroom for that moment.
    """
    if not needed or sys.platform != "linux":
        yield
        return
    with _FENCE:
        pages = int(Path("/proc/self/statm").read_bytes().split()[0])
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        fence = pages * resource.getpagesize() + MEMORY_BYTES_MAX
        limits = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_AS, (min([fence, *limits]), hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
