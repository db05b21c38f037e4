"""Expressions that select devices: the part of CEL that drivers and claims use, read once and asked per device.

Supported: literals, lists, arithmetic, comparisons, `in`, `&&`, `||`, `!`, `?:`, fields and keys, `has`, `cel.bind`,
`all`, `exists`, `size`, `quantity`, `semver` and the methods of strings, quantities and versions below. Anything else
is refused when it is read, so that a wish is never half understood. `matches` is left out on purpose: Python's regular
expressions can be made to run for hours, and whoever writes a claim must not be able to hold the scheduler up.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from wattflow.kube import quantity
from wattflow.model.errors import InvalidInput

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+\.\d+(?:[eE][+-]?\d+)?|0x[0-9a-fA-F]+|\d+)u?|(?P<name>[A-Za-z_]\w*)
    |(?P<raw>[rR](?:"[^"\n]*"|'[^'\n]*'))|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]]))""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "`": "`", "?": "?"}
# Each level is a few Python frames: far below the interpreter's own limit.
_MOST_DEPTH = 60
Scope = Mapping[str, Any]
Term = Callable[[Scope], Any]


class CelError(ValueError):
    """An expression that we do not read, or that has no value for a device."""


_RAISED = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError, InvalidInput)
"""Errors that a tenant's expression can make Python raise, also by attributes of other types."""


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A semantic version; one with a pre-release comes before the same without."""

    numbers: tuple[int, int, int]
    pre: tuple[tuple[int, int, str], ...]

    @classmethod
    def of(cls, text: str) -> Version:
        """Read a version such as 1.2.3-rc.1+build."""
        found = re.fullmatch(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", text)
        if found is None:
            raise CelError(f"{text[:40]!r} is no semantic version")
        parts = found[4].split(".") if found[4] else ()
        # numbers before words, and without any part last of all
        pre = tuple((0, int(one), "") if one.isdigit() else (1, 0, one) for one in parts)
        # A version without a pre-release sorts after all that have one.
        return cls((int(found[1]), int(found[2]), int(found[3])), pre or ((2, 0, ""),))


class _Empty(dict[str, Any]):
    """A table whose missing keys are empty tables: domains of attributes that a device has none of."""

    def __missing__(self, key: str) -> Any:
        return {}


def device(
    driver: str, attributes: Mapping[str, Any], capacity: Mapping[str, str], shared: bool = False
) -> dict[str, Any]:
    """Return what ``device`` is in expressions; names without a domain are the driver's own."""
    tables = []
    for found in (attributes, {name: quantity.exact(text) for name, text in capacity.items()}):
        table = _Empty()
        for name, value in found.items():
            # `rpartition`: a domain may hold slashes of its own, a name cannot.
            domain, _, own = name.rpartition("/")
            table.setdefault(domain or driver, {})[own] = value
        tables.append(table)
    return {
        "driver": driver, "attributes": tables[0], "capacity": tables[1], "allowMultipleAllocations": shared,
    }  # fmt: skip


# Few expressions, asked for every device of every node.
@functools.lru_cache(maxsize=4096)
def read(expression: str) -> Term:
    """Return what an expression asks. Raises CelError where it is no expression, or one that we do not support."""
    parser = _Parser(_tokens(expression))
    try:
        found = parser.choice()
    except CelError:
        raise
    except _RAISED as error:
        raise CelError(f"{type(error).__name__}: {error}") from error
    if parser.kind != "end":
        raise CelError(f"unexpected {parser.text!r}")
    return found


def holds(expression: str, about: Mapping[str, Any]) -> bool:
    """Tell whether a device is selected. Raises CelError where that has no answer."""
    try:
        found = read(expression)({"device": about})
    except CelError:
        raise
    except _RAISED as error:
        raise CelError(f"{type(error).__name__}: {error}") from error
    if not isinstance(found, bool):
        raise CelError(f"its value is {type(found).__name__}, not true or false")
    return found


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    # Blanks at the end match no token.
    text = text.rstrip()
    while at < len(text):
        one = _TOKEN.match(text, at)
        if one is None:
            raise CelError(f"cannot be read from {text[at : at + 20]!r} on")
        found.append((str(one.lastgroup), one[str(one.lastgroup)]))
        at = one.end()
    return [*found, ("end", "its end")]


class _Parser:
    """Recursive descent, one method for each level of precedence; each returns a function of the scope."""

    def __init__(self, tokens: Sequence[tuple[str, str]]) -> None:
        self._tokens, self._at, self._depth = tokens, 0, 0

    @property
    def kind(self) -> str:
        return self._tokens[self._at][0]

    @property
    def text(self) -> str:
        return self._tokens[self._at][1]

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _is(self, *signs: str) -> bool:
        return self.kind == "sign" and self.text in signs

    def _take(self, sign: str) -> None:
        if not self._is(sign):
            raise CelError(f"{sign!r} is missing before {self.text!r}")
        self._next()

    def choice(self) -> Term:
        """Read a whole expression: one with ``?:``, or anything below it."""
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise CelError("it is nested too deeply")
        test = self._either()
        if self._is("?"):
            self._next()
            # Not `choice`: in CEL a conditional in the middle needs brackets.
            yes = self._either()
            self._take(":")
            no = self.choice()
            self._depth -= 1
            return lambda scope: yes(scope) if _truth(test(scope)) else no(scope)
        self._depth -= 1
        return test

    def _either(self) -> Term:
        left = self._both()
        while self._is("||"):
            self._next()
            left = functools.partial(_joined, True, left, self._both())
        return left

    def _both(self) -> Term:
        left = self._compared()
        while self._is("&&"):
            self._next()
            left = functools.partial(_joined, False, left, self._compared())
        return left

    def _compared(self) -> Term:
        left = self._summed(0)
        while self._is(*_COMPARE) or (self.kind, self.text) == ("name", "in"):
            left = functools.partial(_both_of, _COMPARE[self._next()], left, self._summed(0))
        return left

    def _summed(self, level: int) -> Term:
        if level == len(_ARITHMETIC):
            return self._signed()
        left, signs = self._summed(level + 1), _ARITHMETIC[level]
        while self._is(*signs):
            left = functools.partial(_both_of, signs[self._next()], left, self._summed(level + 1))
        return left

    def _signed(self) -> Term:
        if self._is("!"):
            self._next()
            inner = self._signed()
            # Strictly a bool: CEL has no truth of other values.
            return lambda scope: not _truth(inner(scope))
        if self._is("-"):
            self._next()
            inner = self._signed()
            return lambda scope: -_number(inner(scope))
        return self._member()

    def _member(self) -> Term:
        left = self._primary()
        while self._is(".", "["):
            if self._next() == "[":
                key = self.choice()
                self._take("]")
                left = functools.partial(_item, left, key)
                continue
            if self.kind != "name":
                raise CelError(f"a name is missing after '.', before {self.text!r}")
            name = self._next()
            left = self._method(left, name) if self._is("(") else functools.partial(_field, left, name)
        return left

    def _method(self, left: Term, name: str) -> Term:
        if name in ("all", "exists"):
            self._take("(")
            variable = self._name()
            self._take(",")
            test = self.choice()
            self._take(")")
            return functools.partial(_quantified, name == "all", left, variable, test)
        return _call(f"method {name}", _METHODS.get(name), [left, *self._arguments()])

    def _name(self) -> str:
        if self.kind != "name":
            raise CelError(f"a name is missing before {self.text!r}")
        return self._next()

    def _arguments(self) -> list[Term]:
        found: list[Term] = []
        self._take("(")
        while not self._is(")"):
            if found:
                self._take(",")
            found.append(self.choice())
        self._take(")")
        return found

    def _primary(self) -> Term:
        kind = self.kind
        if self._is("("):
            self._next()
            inner = self.choice()
            self._take(")")
            return inner
        if self._is("["):
            return self._list()
        if kind == "name":
            return self._named(self._next())
        if kind not in ("number", "text", "raw"):
            raise CelError(f"unexpected {self.text!r}")
        value = _literal(kind, self._next())
        return lambda scope: value

    def _list(self) -> Term:
        items: list[Term] = []
        self._take("[")
        while not self._is("]"):
            if items:
                self._take(",")
            items.append(self.choice())
        self._take("]")
        return lambda scope: [one(scope) for one in items]

    def _named(self, name: str) -> Term:
        if name in _CONSTANTS:
            return lambda scope: _CONSTANTS[name]
        if name == "has" and self._is("("):
            return self._has()
        if name == "cel" and self._is("."):
            return self._bound()
        if self._is("("):
            return _call(f"function {name}", _FUNCTIONS.get(name), self._arguments())
        return lambda scope: _variable(scope, name)

    def _has(self) -> Term:
        self._take("(")
        found = self._member()
        self._take(")")
        # The parser's own function tells a field from everything else that may stand here.
        if not isinstance(found, functools.partial) or found.func is not _field:
            raise CelError("has() needs a field")
        holder, name = found.args
        return lambda scope: name in _table(holder(scope))

    def _bound(self) -> Term:
        self._take(".")
        if self._name() != "bind":
            raise CelError("of cel only cel.bind is supported")
        self._take("(")
        name = self._name()
        self._take(",")
        value = self.choice()
        self._take(",")
        inner = self.choice()
        self._take(")")
        return lambda scope: inner({**scope, name: value(scope)})


def _call(what: str, known: tuple[int, Callable[..., Any]] | None, terms: list[Term]) -> Term:
    if known is None or known[0] != len(terms):
        raise CelError(f"the {what} with {len(terms)} arguments is not supported")
    function = known[1]
    return lambda scope: function(*(term(scope) for term in terms))


def _literal(kind: str, text: str) -> Any:
    if kind == "number":
        if "." in text:
            return float(text)
        # Zeros in front are decimal in CEL, and an error to Python where it looks for the base itself.
        return int(text, 16 if text[:2].lower() == "0x" else 10)
    if kind == "raw":
        return text[2:-1]

    def plain(found: re.Match[str]) -> str:
        if found[1] not in _ESCAPES:
            raise CelError(f"the escape {found[0]!r} is not supported")
        return _ESCAPES[found[1]]

    return re.sub(r"\\(.)", plain, text[1:-1])


def _joined(absorbing: bool, left: Term, right: Term, scope: Scope) -> bool:
    """Evaluate ``||`` (absorbing True) or ``&&``: the absorbing value wins over an error on either side, as in CEL."""
    errors: list[CelError] = []
    for term in (left, right):
        try:
            if _truth(term(scope)) is absorbing:
                return absorbing
        except CelError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return not absorbing


def _both_of(how: Callable[[Any, Any], Any], left: Term, right: Term, scope: Scope) -> Any:
    return how(left(scope), right(scope))


def _item(left: Term, key: Term, scope: Scope) -> Any:
    table, wanted = left(scope), key(scope)
    if isinstance(table, list):
        if not isinstance(wanted, int) or isinstance(wanted, bool) or not 0 <= wanted < len(table):
            raise CelError(f"no such index: {wanted!r}")
        return table[wanted]
    return _lookup(_table(table), wanted)


def _field(left: Term, name: str, scope: Scope) -> Any:
    return _lookup(_table(left(scope)), name)


def _lookup(table: Mapping[str, Any], key: Any) -> Any:
    if key in table or isinstance(table, _Empty):
        return table[key]
    raise CelError(f"no such key: {key}")


def _quantified(every: bool, left: Term, name: str, test: Term, scope: Scope) -> bool:
    found = [_truth(test({**scope, name: one})) for one in left(scope)]
    return all(found) if every else any(found)


def _variable(scope: Scope, name: str) -> Any:
    if name not in scope:
        raise CelError(f"there is no {name}")
    return scope[name]


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelError(f"{value!r} is not true or false")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CelError(f"{value!r} is no number")
    return value


def _table(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise CelError(f"{value!r} has no fields")
    return value


def _same_kind(left: Any, right: Any) -> None:
    plain = (int, float)
    numbers = type(left) in plain and type(right) in plain
    # By exact type: True is an int in Python, but not a number in CEL.
    if not numbers and type(left) is not type(right):
        raise CelError(f"{left!r} cannot be compared with {right!r}")


def _ordered(how: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(left: Any, right: Any) -> bool:
        _same_kind(left, right)
        return how(left, right)

    return compare


def _numeric(how: Callable[[Any, Any], Any], texts: bool = False) -> Callable[[Any, Any], Any]:
    def compute(left: Any, right: Any) -> Any:
        if not (texts and isinstance(left, str) and isinstance(right, str)):
            _number(left), _number(right)
        found = how(left, right)
        # CEL's integers have 64 bits.
        if isinstance(found, int) and not -(2**63) <= found < 2**63:
            raise CelError("integer overflow")
        return found

    return compute


def _divided(left: Any, right: Any) -> Any:
    if isinstance(left, float) or isinstance(right, float):
        return left / right
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)  # towards nought, unlike Python's


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise CelError(f"{value!r} is no text")
    return value


def _compared_to(left: Any, right: Any) -> int:
    _same_kind(left, right)
    return int(left > right) - int(left < right)


_CONSTANTS = {"true": True, "false": False, "null": None}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": _ordered(operator.eq), "!=": _ordered(operator.ne), "<": _ordered(operator.lt), "<=": _ordered(operator.le),
    ">": _ordered(operator.gt), ">=": _ordered(operator.ge), "in": lambda one, many: one in many,
}  # fmt: skip
_ARITHMETIC: tuple[dict[str, Callable[[Any, Any], Any]], ...] = (
    {"+": _numeric(operator.add, texts=True), "-": _numeric(operator.sub)},
    {
        "*": _numeric(operator.mul),
        "/": _numeric(_divided),
        "%": _numeric(lambda left, right: left - right * _divided(left, right)),
    },
)
_FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "quantity": (1, lambda text: quantity.exact(_text(text))),
    "semver": (1, lambda text: Version.of(_text(text))),
    "size": (1, len),
    "string": (1, lambda value: value if isinstance(value, str) else str(_number(value))),
    "int": (1, lambda value: int(_number(value))),
}
_METHODS: dict[str, tuple[int, Callable[..., Any]]] = {
    "startsWith": (2, lambda text, start: _text(text).startswith(_text(start))),
    "endsWith": (2, lambda text, end: _text(text).endswith(_text(end))),
    "contains": (2, lambda text, part: _text(part) in _text(text)),
    "lowerAscii": (1, lambda text: _text(text).lower()),
    "upperAscii": (1, lambda text: _text(text).upper()),
    "size": (1, len),
    "compareTo": (2, _compared_to),
    "isGreaterThan": (2, lambda one, other: _compared_to(one, other) > 0),
    "isLessThan": (2, lambda one, other: _compared_to(one, other) < 0),
    "asInteger": (1, lambda value: int(value) if isinstance(value, Decimal) else _number(value)),
    "major": (1, lambda version: version.numbers[0]),
    "minor": (1, lambda version: version.numbers[1]),
    "patch": (1, lambda version: version.numbers[2]),
}
