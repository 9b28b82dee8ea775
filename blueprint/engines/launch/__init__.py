"""How every engine is started: typed values in; argument vector, environment and files out.

User data on AWS, manifests on Azure and the golden files of the tests are rendered from these launchers, so that no
flag, variable or file of an engine is spelled anywhere else.
"""

from blueprint.engines.launch.base import Launcher

__all__ = ["Launcher"]
