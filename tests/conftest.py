"""Guards and fixtures of the whole test suite."""

import functools
import gc
import os

import botocore.loaders
import pytest
from hypothesis import settings

# On CI the same examples every time: a change is judged by what it changes. Everywhere else new ones each run.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("developer", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "developer")

# onnxruntime, which faster-whisper brings along, tells its maker about itself; its own call to stop that does not.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

# Each session of boto3 parses the files of the services that it calls: a third of what a test with moto takes.
botocore.loaders.create_loader = functools.cache(botocore.loaders.create_loader)

# rich asks these how a terminal looks; what commands print is judged as a pipe gets it.
for name in ("FORCE_COLOR", "COLUMNS"):
    os.environ.pop(name, None)


# What is imported and collected stays until the end: looking through it for garbage is a quarter of the time.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to run where the tests could only fail in a way that nobody understands."""
    if (config.rootpath / "constructs" / "__init__.py").exists():
        raise pytest.UsageError(
            "constructs/__init__.py exists: it makes constructs/ a package that hides the PyPI package `constructs`, "
            "which aws-cdk-lib imports. Delete it; constructs/ is a source root that holds voice_constructs/."
        )
