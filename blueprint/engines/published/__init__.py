"""What the engines' published releases accept and offer, and whether what a launcher emits fits.

The tables beside this module are read from the published wheels by ``make refresh-engines``.
"""

from blueprint.engines.published.release import (
    Command,
    Endpoint,
    EngineTable,
    Origin,
    PublishedMetric,
    Setting,
    published,
)
from blueprint.engines.published.rules import (
    check_argv,
    check_document,
    check_endpoint,
    check_environment,
    check_metric,
)

__all__ = [
    "Command",
    "Endpoint",
    "EngineTable",
    "Origin",
    "PublishedMetric",
    "Setting",
    "check_argv",
    "check_document",
    "check_endpoint",
    "check_environment",
    "check_metric",
    "published",
]
