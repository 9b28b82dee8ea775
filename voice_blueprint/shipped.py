"""Shipped files that are not Python modules: image sources, the CDK's entry point, npm's lock file.

In a checkout they are in the root; in a wheel they are in ``voice_blueprint/packaged`` (``hatch_build.py``) with the
same layout.
"""

from pathlib import Path

CHECKOUT_FOLDER = Path(__file__).parents[1]
"""Root of the checkout, or the folder in which the packages are installed."""

_PACKAGED_FOLDER = Path(__file__).with_name("packaged")
IS_INSTALLED = _PACKAGED_FOLDER.is_dir()
"""Whether this is an installed wheel instead of a checkout."""

ROOT = _PACKAGED_FOLDER if IS_INSTALLED else CHECKOUT_FOLDER
"""Root of the shipped files."""

WORKING_FOLDER = Path.cwd() if IS_INSTALLED else CHECKOUT_FOLDER
"""Parent of the folder ``.voice``, in which commands store state between runs."""
