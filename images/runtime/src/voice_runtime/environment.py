"""Reads settings from the environment. Errors contain the name of the variable."""

import sys
from typing import TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings

INVALID_SETTINGS_EXIT_CODE = 2
"""Exit code of a program with an invalid environment."""

SettingsType = TypeVar("SettingsType", bound=BaseSettings)


def read_settings(settings_type: type[SettingsType]) -> SettingsType:
    """Return settings from the environment, or report each invalid variable and exit.

    Raises:
        SystemExit: A variable is missing or invalid.
    """
    try:
        return settings_type()
    except ValidationError as error:
        for problem in describe_invalid_variables(settings_type, error):
            sys.stderr.write(f"{problem}\n")
        raise SystemExit(INVALID_SETTINGS_EXIT_CODE) from None


def describe_invalid_variables(settings_type: type[BaseSettings], error: ValidationError) -> list[str]:
    """Return a description of each invalid variable with its permitted values.

    The value of a secret is not included.
    """
    prefix = settings_type.model_config.get("env_prefix", "")
    messages = []
    for detail in error.errors(include_url=False, include_context=False):
        message = detail["msg"].removeprefix("Value error, ")
        if not detail["loc"]:
            messages.append(message)
            continue
        field = str(detail["loc"][0])
        variable = f"{prefix}{field}".upper()
        if detail["type"] == "missing":
            messages.append(f"{variable} is not set")
        elif "Secret" in str(settings_type.model_fields[field].annotation):
            messages.append(f"{variable}: {message}")
        else:
            messages.append(f"{variable}={str(detail['input'])[:80]!r}: {message}")
    return messages
