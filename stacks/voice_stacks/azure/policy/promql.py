"""The subset of PromQL that scaling, alerts and dashboards use, as a syntax tree.

Grammar: https://prometheus.io/docs/prometheus/latest/querying/basics and .../querying/operators.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN_PATTERN = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
        |(?P<name>[a-zA-Z_:][\w:]*)
        |(?P<text>"(?:[^"\\]|\\.)*")
        |(?P<range>\[[^\]]*\])
        |(?P<sign>=~|!~|!=|==|>=|<=|[-+*/^%(){},<>=]))""",
    re.VERBOSE,
)
_PRECEDENCE_LEVELS = (("or",), ("and", "unless"), ("==", "!=", ">", "<", ">=", "<="), ("+", "-"), ("*", "/", "%"))
"""Binary operators in ascending order of precedence."""
COMPARISON_OPERATORS = frozenset(_PRECEDENCE_LEVELS[2])
_AGGREGATIONS = frozenset({"sum", "max", "min", "avg", "count", "group", "stddev", "topk", "bottomk", "quantile"})
_VECTOR_MATCHING_KEYWORDS = ("on", "ignoring", "group_left", "group_right", "bool")


class PromqlError(ValueError):
    """Text that Prometheus rejects, or that this subset does not include."""


@dataclass(frozen=True)
class Number:
    """A constant."""

    value: float


@dataclass(frozen=True)
class LabelMatcher:
    """A condition in a selector: a label, ``=``, ``!=``, ``=~`` or ``!~``, and a value."""

    label: str
    operator: str
    value: str

    @property
    def selected_values(self) -> tuple[str, ...]:
        """The values that are selected by name; empty for an exclusion or a regular expression."""
        if self.operator == "=":
            return (self.value,)
        names = tuple(self.value.split("|"))
        return names if self.operator == "=~" and all(re.fullmatch(r"[\w-]+", name) for name in names) else ()


@dataclass(frozen=True)
class Selector:
    """A series selector: metric name and label matchers."""

    name: str
    matchers: tuple[LabelMatcher, ...] = ()


@dataclass(frozen=True)
class FunctionCall:
    """A function or an aggregation."""

    name: str
    arguments: tuple["Expression", ...] = field(default_factory=tuple)


@dataclass(frozen=True)
class BinaryOperation:
    """Two expressions and the operator between them."""

    operator: str
    left: "Expression"
    right: "Expression"


Expression = Number | Selector | FunctionCall | BinaryOperation


def parse_expression(text: str) -> Expression:
    """Return the syntax tree of an expression.

    Raises:
        PromqlError: The text is not an expression.
    """
    parser = _Parser(text)
    result = parser.parse_binary(0)
    if parser.kind:
        raise PromqlError(f'"{text}": unexpected {parser.text}')
    return result


def find_selectors(expression: Expression) -> Iterator[Selector]:
    """Yield the series that an expression reads."""
    match expression:
        case Selector():
            yield expression
        case FunctionCall():
            for argument in expression.arguments:
                yield from find_selectors(argument)
        case BinaryOperation():
            yield from find_selectors(expression.left)
            yield from find_selectors(expression.right)


class _Parser:
    def __init__(self, source: str) -> None:
        self._source, self._position = source, 0
        self.kind, self.text = "", ""
        self._advance()

    def parse_binary(self, level: int) -> Expression:
        if level == len(_PRECEDENCE_LEVELS):
            return self._parse_unary()
        left = self.parse_binary(level + 1)
        while self.text in _PRECEDENCE_LEVELS[level] and self.kind in {"sign", "name"}:
            operator = self._next_token()
            while self.text in _VECTOR_MATCHING_KEYWORDS:
                self._next_token()
                if self.text == "(":
                    self._skip_labels()
            left = BinaryOperation(operator, left, self.parse_binary(level + 1))
        return left

    def _parse_unary(self) -> Expression:
        if self.text == "-":
            self._next_token()
            return BinaryOperation("-", Number(0), self._parse_unary())
        result = self._parse_primary()
        while self.kind == "range":
            self._next_token()
        return result

    def _parse_primary(self) -> Expression:
        if self.kind == "number":
            return Number(float(self._next_token()))
        if self.text == "(":
            self._expect("(")
            result = self.parse_binary(0)
            self._expect(")")
            return result
        if self.kind != "name":
            raise PromqlError(f'"{self._source}": {self.text or "its end"} is not an expression')
        name = self._next_token()
        if name in _AGGREGATIONS and self.text in {"by", "without"}:
            self._next_token()
            self._skip_labels()
        if self.text == "(":
            return self._parse_call(name)
        return Selector(name, self._parse_matchers())

    def _parse_call(self, name: str) -> FunctionCall:
        self._expect("(")
        arguments: list[Expression] = []
        while self.text != ")":
            arguments.append(self.parse_binary(0))
            if self.text == ",":
                self._next_token()
            elif self.text != ")":
                raise PromqlError(f'"{self._source}": unexpected {self.text or "end"} in {name}()')
        self._expect(")")
        if name in _AGGREGATIONS and self.text in {"by", "without"}:
            self._next_token()
            self._skip_labels()
        return FunctionCall(name, tuple(arguments))

    def _parse_matchers(self) -> tuple[LabelMatcher, ...]:
        results: list[LabelMatcher] = []
        if self.text != "{":
            return ()
        self._next_token()
        while self.text != "}":
            label, operator, value = self._next_token("name"), self._next_token("sign"), self._next_token("text")
            results.append(LabelMatcher(label, operator, value[1:-1]))
            if self.text == ",":
                self._next_token()
        self._expect("}")
        return tuple(results)

    def _skip_labels(self) -> None:
        self._expect("(")
        while self.text != ")":
            self._next_token()
        self._expect(")")

    def _next_token(self, kind: str = "") -> str:
        if not self.kind or (kind and kind != self.kind):
            raise PromqlError(f'"{self._source}": {self.text or "its end"} is not a {kind or "part"}')
        text = self.text
        self._advance()
        return text

    def _expect(self, text: str) -> None:
        if self.text != text:
            raise PromqlError(f'"{self._source}": expected {text}, got {self.text or "its end"}')
        self._advance()

    def _advance(self) -> None:
        if not self._source[self._position :].strip():
            self.kind, self.text = "", ""
            return
        match = _TOKEN_PATTERN.match(self._source, self._position)
        if match is None:
            raise PromqlError(f'"{self._source}" is not valid PromQL at {self._source[self._position :].strip()}')
        self._position = match.end()
        self.kind = match.lastgroup or ""
        self.text = match[self.kind]
