"""`python -m tests.releases.record VERSION`: record the properties whose change replaces a resource.

An upgrade is compared by the identity of each resource and by the properties that cause replacement. The drill deploys
those stacks
of the sandbox that contain data, so their templates are recorded completely.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from shutil import copyfile, rmtree
from typing import Any

from voice_blueprint.shipped import ROOT
from voice_ops.main import main
from voice_sandbox.aws.adapters.schemas import list_create_only_paths, list_identifier_properties
from voice_sandbox.aws.diff import UPGRADE_ONLY_PROPERTIES
from voice_sandbox.aws.shapes import Json
from voice_sandbox.azure.graph import Resource
from voice_sandbox.azure.replacements import is_immutable, requires_replacement

FOLDER = Path(__file__).parent
DRILL_TIERS = ("network", "registry", "state")
_LAUNCHES = {
    "AWS::AutoScaling::AutoScalingGroup": ("AutoScalingGroupName", "LaunchTemplate"),
    "AWS::EC2::LaunchTemplate": ("LaunchTemplateData",),
}
"""Properties that identify the launch template of a group."""


def template_identity(template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the resources of a template with the properties that replace them, and its exports."""
    exports = {name: output for name, output in template.get("Outputs", {}).items() if "Export" in output}
    resources = {name: _immutable_properties(body) for name, body in template["Resources"].items()}
    text = json.dumps(resources)
    parameters = {
        name: {"Type": each["Type"], "Default": each.get("Default")}
        for name, each in template.get("Parameters", {}).items()
        if f'"{name}"' in text
    }
    found = {"Parameters": parameters, "Resources": resources, "Outputs": exports}
    return {name: section for name, section in found.items() if section}


def _immutable_properties(body: Mapping[str, Any]) -> dict[str, Any]:
    kind = body["Type"]
    names = {path[0] for path in list_create_only_paths(kind)} | {
        *list_identifier_properties(kind),
        *UPGRADE_ONLY_PROPERTIES.get(kind, ()),
    }
    names.update(_LAUNCHES.get(kind, ()))
    kept = {name: value for name, value in body.get("Properties", {}).items() if name in names}
    if "LaunchTemplateData" in kept:
        kept["LaunchTemplateData"] = {}
    return {"Type": kind, "Properties": kept} if kept else {"Type": kind}


def graph_identity(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded Pulumi graph with only the inputs that cannot change in place."""
    resources = [_identity(item) for item in document["resources"] if item["custom"]]
    return {**document, "resources": resources, "outputs": {}}


def _identity(item: Mapping[str, Any]) -> dict[str, Any]:
    resource = Resource(item["urn"], item["type"], item["name"], replace_on_changes=tuple(item["replace_on_changes"]))
    needs = {name: urns for name, urns in item["property_dependencies"].items() if requires_replacement(resource, name)}
    kept = {name: item[name] for name in ("urn", "type", "name", "provider", "replace_on_changes") if item[name]}
    return {**kept, "inputs": _fixed_inputs(resource, "", item["inputs"]), "property_dependencies": needs}


def _fixed_inputs(resource: Resource, path: str, value: Json) -> Json:
    """Return the part of an input that cannot change in place; lists keep their length."""
    if isinstance(value, list):
        return [_fixed_inputs(resource, f"{path}[{index}]", item) for index, item in enumerate(value)]
    if not isinstance(value, dict) or "voice:mark" in value:
        return value
    below = {f"{path}.{name}".removeprefix("."): name for name in value}
    return {name: _fixed_inputs(resource, at, value[name]) for at, name in below.items() if is_immutable(resource, at)}


def _drill_manifest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest of the drill's stacks."""
    names = {f"sandbox-{tier}{end}" for tier in DRILL_TIERS for end in ("", ".assets")}
    artifacts = {name: each for name, each in manifest["artifacts"].items() if name in names}
    for artifact in artifacts.values():
        artifact.pop("metadata", None)
    return {**manifest, "artifacts": artifacts}


def reduce(folder: Path, target: Path) -> None:
    """Write the identities in the output of ``voice plan --record`` to a folder."""
    for file in sorted(folder.rglob("*.json")):
        place = target / file.relative_to(folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        document = json.loads(file.read_text(encoding="utf-8"))
        if "azure" in place.parts:
            _write(place, graph_identity(document))
        elif "sandbox" in place.parts:
            if file.name == "manifest.json":
                _write(place, _drill_manifest(document))
            elif file.name.split(".")[0].removeprefix("sandbox-") in DRILL_TIERS:
                copyfile(file, place)
        elif file.name.endswith(".template.json"):
            _write(place, template_identity(document))


def _write(file: Path, document: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def record(version: str) -> None:
    """Record the shipped files as a release, replacing the previous record."""
    for old in FOLDER.glob("[0-9]*"):
        rmtree(old)
    target = FOLDER / version
    target.mkdir()
    for name in ("production-us-east-1", "production-azure", "sandbox"):
        copyfile(ROOT / "deployments" / f"{name}.yaml", target / f"{name}.yaml")
        sys.argv = ["voice", "plan", str(target / f"{name}.yaml"), "--record", str(target / "whole")]
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise
    reduce(target / "whole", target)
    rmtree(target / "whole")


if __name__ == "__main__":
    record(sys.argv[1])
