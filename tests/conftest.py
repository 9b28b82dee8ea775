"""Guards and fixtures of the whole test suite."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to run where the tests could only fail in a way that nobody understands."""
    if (config.rootpath / "constructs" / "__init__.py").exists():
        raise pytest.UsageError(
            "constructs/__init__.py exists: it makes constructs/ a package that hides the PyPI package `constructs`, "
            "which aws-cdk-lib imports. Delete it; constructs/ is a source root that holds voice_constructs/."
        )
