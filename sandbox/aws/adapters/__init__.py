"""The adapters; importing this package registers them all."""

from __future__ import annotations

import importlib
import pkgutil

from sandbox.aws.adapters.base import ADAPTERS, Adapter
from sandbox.aws.adapters.moto_models import moto_adapter

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")


def adapter_for(kind: str) -> type[Adapter] | None:
    """Return the adapter of a CloudFormation type: one of this package, else one over moto's own model, else None."""
    return ADAPTERS.get(kind) or moto_adapter(kind)


def adapter_class(kind: str) -> type[Adapter]:
    """Return the adapter of a type that a checked template holds.

    Raises:
        KeyError: If there is none.
    """
    found = adapter_for(kind)
    if found is None:
        raise KeyError(kind)
    return found
