"""Mends of moto's services: what boto3 would otherwise not show as it was deployed.

Each module extends one service's responses or models with what this project's templates need; moto keeps the state.
"""

from __future__ import annotations

import importlib
import pkgutil


def install() -> None:
    """Put all mends in place; call it before the server starts."""
    for module in pkgutil.iter_modules(__path__):
        mend = importlib.import_module(f"{__name__}.{module.name}")
        if hasattr(mend, "install"):
            mend.install()
