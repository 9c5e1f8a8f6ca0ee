"""Expressions: ``${{ expr }}`` in a definition, with CEL (cel.dev) between the braces.

A template is a JSON value whose strings may hold expressions. ``compile_template`` reads it once,
when a definition is published, and reports all that is wrong; ``Template.render`` fills it in for
one step. An expression alone in a string keeps its type; inside text it is written as text, encoded
for its place (``interpolation``). ``$${{`` is a literal ``${{``. Data is never evaluated: a value
that holds ``${{`` is rendered as it is.

**Paths.** Most expressions only name a value: ``steps.flight.output.id``. They are followed without
CEL, in 3 us, and hand the value on with all its digits. All others are run by Google's CEL
for C++, on just the values that they name, in 30 us and up (``programs``).

**Numbers.** In a computed expression, a JSON number without a fraction is an int however it was
written (``1`` or ``1.0``), any other is a double. Comparisons mix the two, arithmetic does not:
write ``double(input.price) * 1.2``. Whole numbers of more than 64 bits become doubles there, and
lose digits. Results are the ints and doubles that CEL made.

**Missing values** are errors. ``has(x.y) ? x.y : "z"`` gives a default; so does
``x.?y.orValue("z")``.

**Functions** are those of CEL and of its extensions for strings, math, optionals and encoders, but
for ``format``; patterns and replacements are literals.

**Order.** ``map`` and ``filter`` take the keys of an object in order, and objects in results have
theirs in order. CEL's own order differs from process to process, and the core is deterministic.

**Limits.** Nothing can interrupt an evaluation, so what an expression may cost is bounded before it
is run: to about a second and 256 MB at the very worst (``source``). Usual ones are far from it.

Errors name the place, the expression and what was missing, and show no value: it may be a secret.
"""

from app.core.expressions.interpolation import Encoding
from app.core.expressions.templates import (
    ExpressionFailed,
    InvalidExpression,
    Scope,
    Template,
    compile_template,
    expressions_in,
)

__all__ = [
    "Encoding",
    "ExpressionFailed",
    "InvalidExpression",
    "Scope",
    "Template",
    "compile_template",
    "expressions_in",
]
