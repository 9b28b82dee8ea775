"""Patches for moto's services that make boto3 return resources as they were deployed.

Each module extends a service's responses or models with the features that this project's templates need; moto stores
the state.
"""

from __future__ import annotations

import importlib
import pkgutil


def install() -> None:
    """Install all patches. Call this before the server starts."""
    for module in pkgutil.iter_modules(__path__):
        patch = importlib.import_module(f"{__name__}.{module.name}")
        if hasattr(patch, "install"):
            patch.install()
