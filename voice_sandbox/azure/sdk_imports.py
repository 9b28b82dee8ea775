"""Imports only the azure-native files that are in use, out of the hundreds of files for each service.

A service's package imports all of its classes, which takes up to a second of CPU time, although each class has its own
file.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

from voice_sandbox.azure.schema import SDK_MODULE_BY_PACKAGE, to_module_file_name

SDK_PACKAGE = SDK_MODULE_BY_PACKAGE["azure-native"]

_DERIVED_NAME_PATTERN = re.compile(r"(?:Awaitable)?(\w+?)(?:InitArgs|Args|Result|_output)?")
"""Names that a file defines in addition to the class or function after which it is named."""


class LazyServiceModule(ModuleType):
    """A service's package with lazy imports."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{SDK_PACKAGE}.{folder.name}")
        self.__path__ = [str(folder)]
        self.__package__ = self.__name__

    def __getattr__(self, name: str) -> object:
        match = _DERIVED_NAME_PATTERN.fullmatch(name)
        for file in (to_module_file_name(match[1]), "_inputs", "_enums") if match and not name.startswith("__") else ():
            if importlib.util.find_spec(f"{self.__name__}.{file}"):
                module = importlib.import_module(f"{self.__name__}.{file}")
                value: object = getattr(module, name, module if file == name else None)
                if value is not None:
                    setattr(self, name, value)
                    return value
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


def enable_lazy_imports() -> None:
    """Enable lazy imports for those azure-native services that this process has not imported yet."""
    sdk = importlib.util.find_spec(SDK_PACKAGE)
    if sdk and sdk.origin:
        for file in Path(sdk.origin).parent.glob("*/__init__.py"):
            if file.parent.name != "config":  # values, not classes
                service = LazyServiceModule(file.parent)
                sys.modules.setdefault(service.__name__, service)
