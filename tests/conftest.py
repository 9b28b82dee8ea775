"""Guards and fixtures of the whole test suite."""

import functools
import gc
import os

import botocore.loaders
import pytest

import tests.hypothesis_profiles  # noqa: F401  Hypothesis reads them
from tests.left_out import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401  pytest calls them
from voice_sandbox.loopback import bypass_proxy_for_loopback
from voice_stacks.node import disable_unsafe_package_cache

# onnxruntime, a dependency of faster-whisper, sends telemetry to its vendor unless this is set.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

# Each boto3 session parses its service definitions, which takes a third of the time of a test with moto.
botocore.loaders.create_loader = functools.cache(botocore.loaders.create_loader)

disable_unsafe_package_cache(os.environ)
# Hosts of these tests have an address each: 127.0.0.2 and following, and replicas of engines 127.0.1.0 and following.
bypass_proxy_for_loopback(os.environ, [f"127.0.{network}.{host}" for network in (0, 1) for host in range(10)])

# rich reads the terminal from these; the tests compare the output to a pipe.
for name in ("FORCE_COLOR", "COLUMNS"):
    os.environ.pop(name, None)


# Imported and collected objects are never freed; excluding them from garbage collection saves a quarter of the time.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Write a JUnit report of each process into the folder ``VOICE_JUNIT``; refuse a tree in which no test can pass."""
    if (folder := os.environ.get("VOICE_JUNIT")) and not config.option.xmlpath:
        config.option.xmlpath = f"{folder}/{os.getpid()}.xml"
    if (config.rootpath / "constructs" / "__init__.py").exists():
        raise pytest.UsageError(
            "constructs/__init__.py exists: it makes constructs/ a package that hides the PyPI package `constructs`, "
            "which aws-cdk-lib imports. Delete it; constructs/ is a source root that holds voice_constructs/."
        )
