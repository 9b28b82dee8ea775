"""Registers a program's resources, and rejects invalid ones. A registered resource has an id and outputs."""

from __future__ import annotations

import enum
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from voice_sandbox.azure import arm, definitions, fakes, invokes, schema
from voice_sandbox.azure.errors import DependencyError, EngineError, ResourceError
from voice_sandbox.azure.graph import (
    PROVIDER_PREFIX,
    STACK_REFERENCE_TYPE,
    Graph,
    Resource,
    format_resource_label,
    shorten_type,
)
from voice_sandbox.azure.inputs import find_input_problems
from voice_sandbox.azure.values import UNKNOWN, Properties, Secret, Unknown, contains_secret, reveal_secrets

_AZURE_PREFIX = "azure-native:"


class RunMode(enum.Enum):
    """Mode of a run: `PREVIEW` plans resources with unknown computed values; `UP` simulates their creation."""

    PREVIEW = "preview"
    UP = "up"


@dataclass(frozen=True)
class PreexistingResources:
    """Resources that another stack created before a run.

    Attributes:
        outputs: Exports of stacks, by their full name `local/<project>/<stack>`.
        resources: Azure resources that exist.
    """

    outputs: Mapping[str, Properties] = field(default_factory=dict)
    resources: tuple[Resource, ...] = ()

    def with_stack(self, name: str, graph: Graph) -> PreexistingResources:
        """Return a copy with an additional created stack."""
        return PreexistingResources({**self.outputs, name: graph.outputs}, (*self.resources, *graph.resources))


class Recorder:
    """State of the engine during a run.

    Attributes:
        mode: Mode of the run.
        failure: The first error, which the program receives as an exception.
    """

    def __init__(self, project: str, stack: str, mode: RunMode, existing: PreexistingResources) -> None:
        schema.load_definitions()  # loaded first; otherwise, the first resource would be registered after others
        self._project = project
        self._stack = stack
        self._existing = existing
        self._resources: dict[str, Resource] = {}
        self._outputs: Properties = {}
        self._lock = threading.Lock()
        self.mode = mode
        self.failure: EngineError | None = None

    def build_graph(self) -> Graph:
        """Return the registered resources."""
        with self._lock:
            return Graph(self._project, self._stack, tuple(self._resources.values()), self._outputs)

    def register(self, declared: Resource) -> Resource:
        """Plan or create a resource.

        Raises:
            EngineError: The resource is rejected; the message contains its label.
        """
        with self._lock:
            if declared.urn in self._resources:
                raise ResourceError(
                    f"{declared.label}: declared twice; type, parents' types and name must be unique together, "
                    "so rename one of the two"
                )
            self._validate_order(declared)
            named = self._add_auto_name(declared)
            if named.custom:
                wrong = find_input_problems(named.type, named.inputs)
                if named.type.startswith("azure-native:"):
                    wrong = wrong or definitions.find_definition_problems(shorten_type(named.type), named.inputs)
                if wrong:
                    raise ResourceError("\n".join(f"{named.label}: {problem}" for problem in wrong))
            created = self._add_outputs(named)
            self._reject_duplicate_id(created)
            self._resources[created.urn] = created
            return created

    def read(self, declared: Resource) -> Resource:
        """Look up a resource that was created elsewhere, such as another stack or an object with an id."""
        with self._lock:
            lookup = (
                self._read_stack_reference(declared)
                if declared.type == STACK_REFERENCE_TYPE
                else self._read_resource(declared)
            )
            self._resources[lookup.urn] = lookup
            return lookup

    def invoke(self, token: str, arguments: Properties) -> dict[str, Any]:
        """Return the result of a function that the program calls.

        Raises:
            EngineError: The engine does not support the function, or the requested resource does not exist yet.
        """
        with self._lock:
            return invokes.invoke_function(
                token, reveal_secrets(arguments), [*self._existing.resources, *self._resources.values()]
            )

    def store_outputs(self, urn: str, outputs: Properties) -> None:
        """Store the outputs of a component or of the stack."""
        with self._lock:
            resource = self._resources[urn]
            self._resources[urn] = replace(resource, outputs=outputs)
            if resource.parent is None:
                self._outputs = outputs

    def _validate_order(self, declared: Resource) -> None:
        for urn, reason in declared.dependency_reasons.items():
            if urn not in self._resources:
                raise DependencyError(
                    f"{declared.label} is declared before {format_resource_label(self._resources, urn)} exists, but "
                    f"{reason}"
                )

    def _add_auto_name(self, declared: Resource) -> Resource:
        """Fill in the name that a provider's Check generates."""
        if not declared.custom:
            return declared
        inputs = dict(declared.inputs)
        if declared.type.startswith(_AZURE_PREFIX):
            kind = declared.type.removeprefix(_AZURE_PREFIX)
            if inputs.get(arm.get_name_input(kind)) is None:
                inputs[arm.get_name_input(kind)] = arm.generate_name(kind, declared.name, declared.urn)
        elif declared.type.endswith("helm.sh/v3:Release"):
            inputs.setdefault("name", arm.generate_name("", f"{declared.name}-", declared.urn))
        elif declared.type.startswith("kubernetes:"):
            metadata = inputs.get("metadata") or {}
            if isinstance(metadata, Mapping) and not {"name", "generateName"} & set(metadata):
                generated_name = arm.generate_name("", f"{declared.name}-", declared.urn)
                annotations = {**(metadata.get("annotations") or {}), "pulumi.com/autonamed": "true"}
                inputs["metadata"] = {**metadata, "name": generated_name, "annotations": annotations}
        return replace(declared, inputs=inputs)

    def _add_outputs(self, declared: Resource) -> Resource:
        if not declared.custom:
            return declared
        outputs, identifier = self._build_outputs_and_id(declared)
        secret = {name for name, value in declared.inputs.items() if contains_secret(value)}
        secret |= set(declared.additional_secret_outputs)
        marked = {name: Secret(reveal_secrets(value)) if name in secret else value for name, value in outputs.items()}
        return replace(declared, id=identifier, outputs=marked)

    def _build_outputs_and_id(self, declared: Resource) -> tuple[dict[str, Any], str | None]:
        planned = self.mode is RunMode.PREVIEW
        if declared.type.startswith(PROVIDER_PREFIX):
            return dict(declared.inputs), None if planned else arm.derive_fake_uuid(declared.urn)
        if not declared.type.startswith(_AZURE_PREFIX):
            identifier = (
                None if planned else fakes.build_kubernetes_id(declared.inputs) or arm.derive_fake_uuid(declared.urn)
            )
            return fakes.build_kubernetes_outputs(declared.type, declared.inputs, planned=planned), identifier
        kind = declared.type.removeprefix(_AZURE_PREFIX)
        if planned:
            return fakes.build_planned_outputs(kind, declared.inputs), None
        identifier = arm.build_arm_id(kind, declared.inputs)
        if identifier is None:
            missing = [name for name in arm.list_id_inputs(kind) if declared.inputs.get(name) is None]
            raise ResourceError(f"{declared.label}: its resource id requires {' and '.join(missing)}")
        fake = fakes.FakeResource(kind, declared.inputs, identifier, self._find_group_location(identifier))
        return fakes.build_azure_outputs(fake), identifier

    def _reject_duplicate_id(self, created: Resource) -> None:
        """Reject a resource that has the same id in the cloud as another resource in the program."""
        if created.id is None or created.type.startswith(PROVIDER_PREFIX):
            return
        for other in self._resources.values():
            same_place = other.type == created.type and other.provider == created.provider and not other.external
            if same_place and (other.id or "").lower() == created.id.lower():
                raise ResourceError(f"{created.label}: {other.label} already has this name in the cloud ({created.id})")

    def _find_group_location(self, identifier: str) -> str | None:
        """Return the region of the resource group in an id."""
        group = "/".join(identifier.split("/")[:5]).lower()
        candidates = (*self._existing.resources, *self._resources.values())
        return next((str(r.outputs.get("location")) for r in candidates if (r.id or "").lower() == group), None)

    def _read_stack_reference(self, declared: Resource) -> Resource:
        expected_name = str(declared.inputs.get("name"))
        full = f"local/{self._project}/{expected_name}" if "/" not in expected_name else expected_name
        outputs = self._existing.outputs.get(full)
        if outputs is None:
            candidates = ", ".join(sorted(self._existing.outputs)) or "none"
            raise ResourceError(f"{declared.label}: there is no stack {full}; stacks with outputs: {candidates}")
        answer = {
            "name": expected_name,
            "outputs": dict(outputs),
            "secretOutputNames": sorted(name for name, value in outputs.items() if contains_secret(value)),
        }
        return replace(declared, id=expected_name, outputs=answer, external=True)

    def _read_resource(self, declared: Resource) -> Resource:
        wrong = (
            find_input_problems(declared.type, {})
            if not declared.type.startswith((_AZURE_PREFIX, "kubernetes:"))
            else []
        )
        if wrong:
            raise ResourceError(f"{declared.label}: {wrong[0]}")
        candidates = [r for r in self._existing.resources if r.id == declared.id and r.type == declared.type]
        if candidates:
            return replace(declared, outputs=candidates[0].outputs, external=True)
        outputs: dict[str, Any] = dict(declared.inputs)
        if declared.type.startswith(_AZURE_PREFIX) and declared.id and not isinstance(declared.id, Unknown):
            kind = declared.type.removeprefix(_AZURE_PREFIX)
            outputs = fakes.build_azure_outputs(fakes.FakeResource(kind, arm.parse_id(kind, declared.id), declared.id))
        elif self.mode is RunMode.PREVIEW and "status" not in outputs:
            outputs["status"] = UNKNOWN
        return replace(declared, outputs=outputs, external=True)
