"""Intrinsic functions, conditions and parameters of a template."""

from __future__ import annotations

import base64
import ipaddress
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from voice_sandbox.aws.cloudformation.template import SUBSTITUTION_PATTERN, TemplateError
from voice_sandbox.aws.shapes import Json

_NO_VALUE = object()  # value of Ref to AWS::NoValue, which removes the property or list item


@dataclass
class Evaluator:
    """Evaluates template expressions.

    Attributes:
        template: The template, for its Mappings and Conditions.
        parameters: Resolved parameters and pseudo parameters.
        resolve_resource: Returns the physical id of a resource.
        resolve_attribute: Returns an attribute of a resource.
        import_value: Returns the value of another stack's export.
        list_zones: Returns the availability zones of a region.
    """

    template: Mapping[str, Any]
    parameters: Mapping[str, Any]
    resolve_resource: Callable[[str], str]
    resolve_attribute: Callable[[str, str], Any]
    import_value: Callable[[str], Any]
    list_zones: Callable[[str], list[str]]
    _conditions: dict[str, bool] = field(default_factory=dict)

    def evaluate(self, node: Json) -> Json:
        """Evaluate a part of a template."""
        result = self._evaluate(node)
        return None if result is _NO_VALUE else result

    def evaluate_condition(self, name: str) -> bool:
        if name not in self._conditions:
            if name not in self.template.get("Conditions", {}):
                raise TemplateError(f"Template error: unresolved condition {name}")
            self._conditions[name] = bool(self.evaluate(self.template["Conditions"][name]))
        return self._conditions[name]

    def _evaluate(self, node: Json) -> Json:
        if isinstance(node, list):
            return [value for item in node if (value := self._evaluate(item)) is not _NO_VALUE]
        if not isinstance(node, dict):
            return node
        if len(node) == 1:
            key, argument = next(iter(node.items()))
            function = _INTRINSIC_FUNCTIONS.get(key)
            if function is not None:
                return function(self, argument)
            if key.startswith("Fn::"):
                raise TemplateError(f"Template error: the sandbox does not support {key}")
        return {key: value for key, item in node.items() if (value := self._evaluate(item)) is not _NO_VALUE}

    def resolve_ref(self, name: str) -> Json:
        if name == "AWS::NoValue":
            return _NO_VALUE
        return self.parameters[name] if name in self.parameters else self.resolve_resource(name)

    def get_att(self, argument: str | list[Any]) -> Json:
        """Evaluate `Fn::GetAtt`, in list or dotted form."""
        name, attribute = argument.split(".", 1) if isinstance(argument, str) else argument
        return self.resolve_attribute(name, self.evaluate(attribute))

    def substitute_variables(self, argument: str | list[Any]) -> str:
        """Evaluate `Fn::Sub`."""
        text, variables = (argument, {}) if isinstance(argument, str) else argument
        variables = {name: self.evaluate(node) for name, node in variables.items()}
        pieces, end = [], 0
        for match in SUBSTITUTION_PATTERN.finditer(text):
            literal, name = match.groups()
            pieces.append(text[end : match.start()])
            end = match.end()
            if literal:
                pieces.append(f"${{{name}}}")
            elif name in variables:
                pieces.append(_to_text(variables[name]))
            else:
                pieces.append(_to_text(self.get_att(name) if "." in name else self.resolve_ref(name)))
        return "".join([*pieces, text[end:]])

    def choose_branch(self, argument: list[Any]) -> Json:
        """Evaluate `Fn::If`."""
        name, if_true, if_false = argument
        return self._evaluate(if_true if self.evaluate_condition(name) else if_false)

    def find_in_map(self, argument: list[Any]) -> Json:
        """Evaluate `Fn::FindInMap`."""
        name, first, second = (self.evaluate(item) for item in argument[:3])
        try:
            return self.evaluate(self.template["Mappings"][name][first][second])
        except KeyError as error:
            raise TemplateError(f"Template error: Unable to get mapping for {name}::{first}::{second}") from error

    def split_cidr(self, argument: list[Any]) -> list[str]:
        """Evaluate `Fn::Cidr`."""
        block, count, bits = ([*self.evaluate(argument), 8])[:3]
        network = ipaddress.ip_network(block)
        parts = network.subnets(new_prefix=network.max_prefixlen - int(bits))
        return [str(next(parts)) for _ in range(int(count))]

    def join(self, argument: list[Any]) -> str:
        """Evaluate `Fn::Join`."""
        separator, items = argument
        return str(separator).join(_to_text(item) for item in self.evaluate(items))

    def equals(self, argument: list[Any]) -> bool:
        """Evaluate `Fn::Equals`."""
        left, right = (self.evaluate(item) for item in argument)
        return _to_text(left) == _to_text(right)


def _to_text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _select(evaluator: Evaluator, argument: list[Any]) -> Json:
    index, items = evaluator.evaluate(argument)
    return items[int(index)]


def _split(evaluator: Evaluator, argument: list[Any]) -> list[str]:
    separator, text = evaluator.evaluate(argument)
    return str(text).split(separator)


_INTRINSIC_FUNCTIONS: dict[str, Callable[[Evaluator, Any], Any]] = {
    "Condition": lambda e, a: e.evaluate_condition(a) if isinstance(a, str) else {"Condition": e.evaluate(a)},
    "Fn::And": lambda e, a: all(e.evaluate(item) for item in a),
    "Fn::Base64": lambda e, a: base64.b64encode(str(e.evaluate(a)).encode()).decode(),
    "Fn::Cidr": Evaluator.split_cidr,
    "Fn::Equals": Evaluator.equals,
    "Fn::FindInMap": Evaluator.find_in_map,
    "Fn::GetAZs": lambda e, a: e.list_zones(e.evaluate(a) or e.parameters["AWS::Region"]),
    "Fn::GetAtt": Evaluator.get_att,
    "Fn::If": Evaluator.choose_branch,
    "Fn::ImportValue": lambda e, a: e.import_value(e.evaluate(a)),
    "Fn::Join": Evaluator.join,
    "Fn::Not": lambda e, a: not e.evaluate(a[0]),
    "Fn::Or": lambda e, a: any(e.evaluate(item) for item in a),
    "Fn::Select": _select,
    "Fn::Split": _split,
    "Fn::Sub": Evaluator.substitute_variables,
    "Ref": Evaluator.resolve_ref,
}
