"""Runs the shipped `pulumi-policy` pack on a graph, in a separate process and over Pulumi's protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
from google.protobuf.empty_pb2 import Empty
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc

from voice_sandbox.azure.child import LanguageHost
from voice_sandbox.azure.errors import PolicyPackError
from voice_sandbox.azure.graph import Graph, Resource, format_resource_label
from voice_sandbox.azure.monitor import LogService, serve_engine
from voice_sandbox.azure.values import encode_properties

_START_TIMEOUT_S = 30.0
_RESPONSE_TIMEOUT_S = 60.0
_PropertyDependencies = analyzer_pb2.AnalyzerPropertyDependencies


@dataclass(frozen=True)
class PolicyViolation:
    """A violation of a policy by a resource or by the stack.

    Attributes:
        policy: Name of the policy.
        pack: Name of its pack.
        mandatory: Whether the violation blocks the deployment; otherwise, it is advisory.
        resource: Label of the resource; `None` for the stack as a whole.
        urn: URN of the resource; empty for the stack as a whole.
        message: Description of the policy and the finding.
    """

    policy: str
    pack: str
    mandatory: bool
    resource: str | None
    urn: str
    message: str


class PolicyPack(AbstractContextManager["PolicyPack"]):
    """A policy pack, which is started on first use.

    Args:
        folder: The pack's folder, with PulumiPolicy.yaml and `__main__.py`.
        config: The stacks' configuration by full key, which the pack reads like any Pulumi configuration.
        host: Language host; without one, the pack creates a host, which `stop` stops.

    Raises:
        PolicyPackError: The folder contains no policy pack.
    """

    def __init__(self, folder: Path, config: Mapping[str, str] | None = None, host: LanguageHost | None = None) -> None:
        missing = [name for name in ("PulumiPolicy.yaml", "__main__.py") if not (folder / name).is_file()]
        if missing:
            raise PolicyPackError(f"{folder}: no {' and no '.join(missing)} there, which a policy pack requires")
        self._folder = folder.resolve()
        self._config = dict(config or {})
        self._cleanup = ExitStack()
        self._host = host or self._cleanup.enter_context(LanguageHost())
        self._analyzer: Any = None

    def list_policy_names(self) -> list[str]:
        """Return the names of the pack's policies."""
        return [
            policy.name for policy in self._connect().GetAnalyzerInfo(Empty(), timeout=_RESPONSE_TIMEOUT_S).policies
        ]

    def check(self, graph: Graph) -> list[PolicyViolation]:
        """Run the pack for every resource of a graph, then for the stack.

        Raises:
            PolicyPackError: The pack does not start, or a policy raises an exception.
        """
        analyzer = self._connect()
        violations: list[PolicyViolation] = []
        for resource in graph.resources:
            if not resource.external:
                request = self._create_analyze_request(graph, resource)
                violations += _parse_violations(graph, self._analyze(analyzer.Analyze, request), resource.urn)
        stack_request = analyzer_pb2.AnalyzeStackRequest(
            resources=[_to_stack_resource(graph, r) for r in graph.resources]
        )
        return violations + _parse_violations(graph, self._analyze(analyzer.AnalyzeStack, stack_request), "")

    def _analyze(self, method: Any, request: Any) -> Iterable[Any]:
        try:
            diagnostics: Iterable[Any] = method(request, timeout=_RESPONSE_TIMEOUT_S).diagnostics
        except grpc.RpcError as error:
            raise PolicyPackError(f"{self._folder}: a policy failed: {error.details()}") from None
        return diagnostics

    @staticmethod
    def _create_analyze_request(graph: Graph, resource: Resource) -> Any:
        return analyzer_pb2.AnalyzeRequest(
            type=resource.type,
            properties=encode_properties(resource.inputs),
            urn=resource.urn,
            name=resource.name,
            options=_to_resource_options(resource),
            provider=_to_provider_resource(graph, resource),
        )

    def _connect(self) -> Any:
        if self._analyzer is None:
            channel = grpc.insecure_channel(f"127.0.0.1:{self._start()}", options=[("grpc.enable_http_proxy", 0)])
            self._cleanup.callback(channel.close)
            self._analyzer = analyzer_pb2_grpc.AnalyzerStub(channel)
        return self._analyzer

    def _start(self) -> int:
        """Start the pack and return its port."""
        engine = self._cleanup.enter_context(serve_engine(None, LogService()))
        request = {"folder": str(self._folder), "engine": engine, "config": self._config}
        port: int | None = (self._host.send_request({"pack": request}, _START_TIMEOUT_S) or {}).get("port")
        if port is None:
            stderr = self._host.read_stderr().strip()[-2000:]
            raise PolicyPackError(f"{self._folder}: the policy pack did not start\n{stderr}")
        return port

    def stop(self) -> None:
        self._cleanup.close()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _parse_violations(graph: Graph, diagnostics: Iterable[Any], urn: str) -> list[PolicyViolation]:
    return [
        PolicyViolation(
            policy=diagnostic.policyName,
            pack=diagnostic.policyPackName,
            mandatory=diagnostic.enforcementLevel == analyzer_pb2.MANDATORY,
            resource=format_resource_label(graph, resource_urn) if resource_urn else None,
            urn=resource_urn,
            message=diagnostic.message.strip(),
        )
        for diagnostic in diagnostics
        for resource_urn in [urn or diagnostic.urn]
    ]


def _to_stack_resource(graph: Graph, resource: Resource) -> Any:
    return analyzer_pb2.AnalyzerResource(
        type=resource.type,
        properties=encode_properties(resource.outputs),
        urn=resource.urn,
        name=resource.name,
        options=_to_resource_options(resource),
        provider=_to_provider_resource(graph, resource),
        parent=resource.parent or "",
        dependencies=resource.dependencies,
        propertyDependencies={
            name: _PropertyDependencies(urns=urns) for name, urns in resource.property_dependencies.items()
        },
    )


def _to_resource_options(resource: Resource) -> Any:
    return analyzer_pb2.AnalyzerResourceOptions(
        protect=resource.protect,
        ignoreChanges=resource.ignore_changes,
        deleteBeforeReplace=bool(resource.delete_before_replace),
        deleteBeforeReplaceDefined=resource.delete_before_replace is not None,
        additionalSecretOutputs=resource.additional_secret_outputs,
        aliases=resource.aliases,
        parent=resource.parent or "",
    )


def _to_provider_resource(graph: Graph, resource: Resource) -> Any:
    if resource.provider is None or resource.provider not in graph:
        return None
    provider = graph[resource.provider]
    return analyzer_pb2.AnalyzerProviderResource(
        type=provider.type, properties=encode_properties(provider.inputs), urn=provider.urn, name=provider.name
    )
