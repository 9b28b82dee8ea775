"""Systems Manager: the parameters in an account, without AWS's public parameters."""

from __future__ import annotations

from typing import Any

from moto.ssm.models import Parameter, SimpleSystemManagerBackend, ssm_backends


class PatchedSsm(SimpleSystemManagerBackend):
    """moto's Systems Manager, without the thousands of public parameters that it would list after the first read."""

    __module__ = SimpleSystemManagerBackend.__module__  # module in which moto looks for the service's routes

    def describe_parameters(
        self, filters: list[dict[str, Any]], parameter_filters: list[dict[str, Any]]
    ) -> list[Parameter]:
        parameters = super().describe_parameters(filters, parameter_filters)
        return [parameter for parameter in parameters if not parameter.name.startswith("/aws/")]


def install() -> None:
    """Install the patch."""
    ssm_backends.backend = PatchedSsm
