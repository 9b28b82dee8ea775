"""`voice schema`: the settings of a deployment file, for editors and for people."""

import json
from typing import Annotated

import typer

from ops.schema import markdown
from ops.schema.document import schema as schema_of_files

MARKDOWN_HELP = "Print the page docs/deployment-file.md instead."


def schema(as_markdown: Annotated[bool, typer.Option("--markdown", help=MARKDOWN_HELP)] = False) -> None:
    """Print the JSON schema of deployment files.

    The tree has it as deployments/schema.json, and `make schema` writes it anew. Files name it on their first line, so
    that editors complete settings and show what each means. What only `voice plan` knows is not in it: names that the
    catalogue has, and how settings fit together.

    Example: voice schema > deployments/schema.json
    """
    found = schema_of_files()
    typer.echo(markdown.render(found) if as_markdown else json.dumps(found, indent=2) + "\n", nl=False)
