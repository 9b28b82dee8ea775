"""Systems Manager: the parameters of an account, without AWS's own."""

from __future__ import annotations

from typing import Any

from moto.ssm.models import Parameter, SimpleSystemManagerBackend, ssm_backends


class MendedSsm(SimpleSystemManagerBackend):
    """moto's Systems Manager, which lists thousands of public parameters from the first that anybody reads."""

    __module__ = SimpleSystemManagerBackend.__module__  # where moto looks for the service's routes

    def describe_parameters(
        self, filters: list[dict[str, Any]], parameter_filters: list[dict[str, Any]]
    ) -> list[Parameter]:
        found = super().describe_parameters(filters, parameter_filters)
        return [parameter for parameter in found if not parameter.name.startswith("/aws/")]


def install() -> None:
    """Put the mend in place."""
    ssm_backends.backend = MendedSsm
