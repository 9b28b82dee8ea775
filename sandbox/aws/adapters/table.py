"""The table: how each resource type that this project deploys is created, changed and deleted.

`Kind` explains the keys. What no template emits has no row, and a test holds table and templates together.
"""

from pathlib import Path

import yaml
from pydantic import TypeAdapter

from sandbox.aws.adapters.kind import Kind

_TABLE = Path(__file__).with_name("table.yaml")

KINDS = TypeAdapter(dict[str, Kind]).validate_python(
    yaml.load(_TABLE.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
)
