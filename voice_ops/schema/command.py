"""`voice schema`: print the JSON schema of deployment files."""

import json

import typer

from voice_ops.schema.document import build_schema as schema_of_files


def schema() -> None:
    """Print the JSON schema of deployment files.

    Editors use it for completion and descriptions if the first line of the file refers to it; `voice init` adds this
    line. Combinations of settings are only checked by `voice plan`. The repository contains the schema as
    deployments/schema.json.

    Example: voice schema > deployments/schema.json
    """
    typer.echo(json.dumps(schema_of_files(), indent=2))
