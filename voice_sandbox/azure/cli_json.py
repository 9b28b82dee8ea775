"""A preview in the format of `pulumi preview --json`, for tools. Secrets are replaced by `[secret]`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from voice_sandbox.azure.diff import InputChange, Step, count_by_operation
from voice_sandbox.azure.graph import Resource
from voice_sandbox.azure.project import Project
from voice_sandbox.azure.run import RunResult
from voice_sandbox.azure.values import SECRET_PLACEHOLDER, to_display_value
from voice_sandbox.changes import OpType

_NANOSECONDS_PER_S = 1_000_000_000


def build_preview_json(project: Project, run: RunResult, steps: list[Step]) -> dict[str, Any]:
    """Return a project's preview in the format of the Pulumi CLI. The unit of `duration` is nanoseconds."""
    return {
        "config": {
            key: SECRET_PLACEHOLDER if key in project.secret_keys else value
            for key, value in sorted(project.config.items())
        },
        "steps": [_serialize_step(step) for step in steps],
        "diagnostics": [{"message": message, "severity": "warning"} for message in run.messages],
        "duration": round(run.duration_s * _NANOSECONDS_PER_S),
        "changeSummary": dict(sorted(count_by_operation(steps).items())),
    }


def _serialize_step(step: Step) -> dict[str, Any]:
    return _omit_empty_values(
        {
            "op": step.op.value,
            "urn": step.urn,
            "provider": step.resource.provider,
            "oldState": _serialize_state(step.old),
            "newState": _serialize_state(step.new),
            "diffReasons": [change.path for change in step.changes],
            "replaceReasons": _list_replace_reasons(step),
            "detailedDiff": {change.path: _to_detailed_diff(change) for change in step.changes},
        }
    )


def _list_replace_reasons(step: Step) -> list[str]:
    if step.op is not OpType.REPLACE:
        return []
    reasons = [change.path for change in step.changes if change.requires_replacement]
    return [*reasons, step.replace_reason] if step.replace_reason else reasons


def _to_detailed_diff(change: InputChange) -> dict[str, Any]:
    kind = f"{change.kind.value}-replace" if change.requires_replacement else change.kind.value
    return {"kind": kind, "inputDiff": True}


def _serialize_state(resource: Resource | None) -> dict[str, Any] | None:
    if resource is None:
        return None
    return {"urn": resource.urn, "custom": resource.custom, "type": resource.type} | _omit_empty_values(
        {
            "id": resource.id,
            "inputs": to_display_value(resource.inputs),
            "outputs": to_display_value(resource.outputs),
            "parent": resource.parent,
            "protect": resource.protect,
            "external": resource.external,
            "dependencies": list(resource.dependencies),
            "provider": resource.provider,
            "propertyDependencies": {name: list(urns) for name, urns in resource.property_dependencies.items()},
            "additionalSecretOutputs": list(resource.additional_secret_outputs),
            "aliases": list(resource.aliases),
            "customTimeouts": dict(resource.timeouts),
            "retainOnDelete": resource.retain_on_delete,
            "deletedWith": resource.deleted_with,
        }
    )


def _omit_empty_values(values: dict[str, Any]) -> dict[str, Any]:
    """Omit empty values, as the CLI does."""
    empty: Iterable[Any] = (None, "", False, [], {})
    return {key: value for key, value in values.items() if not any(value is e or value == e for e in empty)}
