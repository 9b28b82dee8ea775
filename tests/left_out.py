"""Debian packages that `make test` could not install: tests that fail without one are skipped."""

import os
import re
import shutil
import sys
from collections.abc import Generator
from ctypes.util import find_library

import pytest

MISSING_PACKAGES_VARIABLE = "VOICE_MISSING_PACKAGES"
"""Variable in which `make test` lists packages that could not be installed; other missing programs fail their tests."""

PROGRAMS = {
    "docker-registry": ("docker-registry",),
    "dnsmasq-base": ("dnsmasq",),
    "ethtool": ("ethtool",),
    "iproute2": ("ip",),
    "nginx-light": ("nginx",),
    "prometheus": ("promtool", "prometheus"),
    "redis-server": ("redis-server", "valkey-server"),
    "skopeo": ("skopeo",),
}
"""Programs by package; a machine that has one of them does not need the package."""
LIBRARIES = {"libopus0": "opus"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip a test that failed because of a package that `make test` could not install.

    pytest calls it for tests below the `conftest.py` that imports it.
    """
    report = yield
    # A report of a failed command contains its status, but not what it printed.
    printed = getattr(call.excinfo.value, "stderr", "") if call.excinfo else ""
    if report.failed and (package := missing_package(f"{report.longrepr}\n{printed}")):
        where, line, _ = item.location
        report.outcome, report.longrepr = "skipped", (where, line or 0, _reason(package))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a file whose import failed for the same reason: libraries are loaded at import."""
    report = yield
    if report.failed and (package := missing_package(str(report.longrepr))):
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, _reason(package))
        # A test that imports from the file fails in the same way, not on an incomplete module.
        for name, module in list(sys.modules.items()):
            if getattr(module, "__file__", None) == str(collector.path):
                del sys.modules[name]
    return report


def require(package: str) -> None:
    """Fail a test without a program of the package, where the failure of a program under test would not name it.

    Raises:
        AssertionError: None of its programs is on this machine.
    """
    assert not _missing_packages(package), f"needs Debian's {package}: `make test` installs it"


def _reason(package: str) -> str:
    return f"Skipped: needs Debian's {package}, which is not installed"


def missing_package(failure: str) -> str | None:
    """Return the missing package that a test's failure names, of those that `make test` could not install."""
    for package in os.environ.get(MISSING_PACKAGES_VARIABLE, "").split():
        if names := _missing_packages(package):
            words = "|".join(map(re.escape, names))
            if re.search(
                rf"No such file or directory: '(?:[^']*/)?(?:{words})'|\b(?:{words}): (?:command )?not found"
                rf"|needs Debian's [^\n]*\b(?:{words})\b|Could not find (?:{words}) library",
                failure,
                re.IGNORECASE,
            ):
                return package
    return None


def _missing_packages(package: str) -> tuple[str, ...]:
    """Return a package's programs or library if none of them is on this machine."""
    if library := LIBRARIES.get(package):
        return () if find_library(library) else (library,)
    programs = PROGRAMS.get(package, ())
    return () if any(map(shutil.which, programs)) else programs
