"""Launchers for all engines, which convert typed values into an argument vector, an environment and files.

User data on AWS, manifests on Azure and the tests' golden files are rendered from these launchers, so no other code
contains an engine's flags, variables or files.
"""

from voice_blueprint.engines.launch.base import Launcher

__all__ = ["Launcher"]
