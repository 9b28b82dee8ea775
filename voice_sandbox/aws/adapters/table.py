"""Table of the API calls for each resource type of this project.

`ResourceKind` documents the keys. Types that no template contains have no row. A test compares the table with the
templates.
"""

from pathlib import Path

import yaml
from pydantic import TypeAdapter

from voice_sandbox.aws.adapters.kind import ResourceKind

_TABLE_FILE = Path(__file__).with_name("table.yaml")

RESOURCE_KINDS = TypeAdapter(dict[str, ResourceKind]).validate_python(
    yaml.load(_TABLE_FILE.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
)
