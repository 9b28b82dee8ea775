"""External values of a template: parameters, public SSM parameters, secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from voice_sandbox.aws.clients import get_client
from voice_sandbox.aws.cloudformation.template import TemplateError
from voice_sandbox.aws.shapes import Json

_DYNAMIC_REFERENCE_PATTERN = re.compile(r"\{\{resolve:(ssm|ssm-secure|secretsmanager):([^{}]+)\}\}")
_ARN_PART_COUNT = 7


def resolve_parameters(
    template: Mapping[str, Any], input_parameters: Mapping[str, str], *, region: str, account: str
) -> dict[str, Any]:
    """Return the value of every template parameter.

    The value of an `AWS::SSM::Parameter` parameter is the name of an SSM parameter, whose value is returned.

    Raises:
        TemplateError: A value is missing or not allowed, or was given for an unknown parameter.
    """
    declared = template.get("Parameters", {})
    if unknown := sorted(input_parameters.keys() - declared.keys()):
        raise TemplateError(f"Parameters: [{', '.join(unknown)}] do not exist in the template")
    values = {}
    for name, declaration in declared.items():
        value = input_parameters.get(name, declaration.get("Default"))
        if value is None:
            raise TemplateError(f"Parameters: [{name}] must have values")
        _validate_value(name, str(value), declaration)
        kind = declaration.get("Type", "String")
        if kind.startswith("AWS::SSM::Parameter::Value"):
            value = _read_ssm_parameter(str(value), region=region, account=account)
        is_list = kind == "CommaDelimitedList" or "List<" in kind
        values[name] = [item.strip() for item in str(value).split(",")] if is_list else value
    return values


def resolve_dynamic_references(node: Json, *, region: str, account: str) -> Json:
    """Resolve the `{{resolve:...}}` references in resource properties."""
    if isinstance(node, dict):
        return {key: resolve_dynamic_references(item, region=region, account=account) for key, item in node.items()}
    if isinstance(node, list):
        return [resolve_dynamic_references(item, region=region, account=account) for item in node]
    if not isinstance(node, str) or "{{resolve:" not in node:
        return node

    def read(match: re.Match[str]) -> str:
        kind, rest = match.groups()
        if kind == "secretsmanager":
            return _read_secret_value(rest, region=region, account=account)
        return _read_ssm_parameter(rest, region=region, account=account)

    return _DYNAMIC_REFERENCE_PATTERN.sub(read, node)


def _validate_value(name: str, value: str, declaration: Mapping[str, Any]) -> None:
    allowed = declaration.get("AllowedValues")
    pattern = declaration.get("AllowedPattern")
    if (allowed and value not in [str(item) for item in allowed]) or (pattern and not re.fullmatch(pattern, value)):
        expectation = f"one of {allowed}" if allowed else f"a match of {pattern}"
        raise TemplateError(f"Parameter '{name}' is {value!r}, but must be {expectation}")


def _read_ssm_parameter(name: str, *, region: str, account: str) -> str:
    api: Any = get_client("ssm", region=region, account=account)
    try:
        return str(api.get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"])
    except ClientError as error:
        raise TemplateError(
            f"Unable to fetch parameters [{name}] from parameter store for this account: {error}"
        ) from error


def _read_secret_value(reference: str, *, region: str, account: str) -> str:
    """Resolve `secret-id:SecretString:json-key:version-stage:version-id`.

    The id may be an ARN, which contains colons.
    """
    parts = reference.split(":")
    prefix_length = _ARN_PART_COUNT if parts[0] == "arn" else 1
    secret_id, rest = ":".join(parts[:prefix_length]), [*parts[prefix_length:], "", "", "", ""]
    _, key, stage, version = rest[:4]
    api: Any = get_client("secretsmanager", region=region, account=account)
    chosen = {"VersionStage": stage, "VersionId": version}
    text = api.get_secret_value(SecretId=secret_id, **{name: item for name, item in chosen.items() if item})[
        "SecretString"
    ]
    if not key:
        return str(text)
    try:
        return str(json.loads(text)[key])
    except (ValueError, KeyError) as error:
        raise TemplateError(
            f"Could not find a value associated with JSON key {key} in the secret {secret_id}"
        ) from error
