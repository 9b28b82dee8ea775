"""The engine's two gRPC services, which the Pulumi SDK of a program calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc  # type: ignore[import-untyped]
from google.protobuf.empty_pb2 import Empty
from pulumi.runtime.proto import alias_pb2, engine_pb2, engine_pb2_grpc, resource_pb2, resource_pb2_grpc

from voice_sandbox.azure.errors import EngineError, ResourceError
from voice_sandbox.azure.graph import Resource, make_urn
from voice_sandbox.azure.inputs import find_remote_component_problem
from voice_sandbox.azure.project import Project
from voice_sandbox.azure.recorder import Recorder, RunMode
from voice_sandbox.azure.values import UNKNOWN_SENTINEL, decode_struct, encode_properties

_Response = TypeVar("_Response")
_CHANNEL_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_ENGINE_FEATURES = (
    resource_pb2.RESOURCE_MONITOR_FEATURE_SECRETS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_ALIAS_SPECS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_DELETED_WITH,
    resource_pb2.RESOURCE_MONITOR_FEATURE_REPLACE_WITH,
)


class ResourceMonitor(resource_pb2_grpc.ResourceMonitorServicer):
    """The service with which a program registers its resources."""

    def __init__(self, project: Project, recorder: Recorder) -> None:
        self._project = project
        self._recorder = recorder

    def GetDeploymentInfo(self, _request: Empty, _context: Any) -> resource_pb2.DeploymentInfo:  # noqa: N802
        """Return information on the deployment and the engine's features."""
        return resource_pb2.DeploymentInfo(
            project=self._project.name,
            stack=self._project.stack,
            organization="local",
            config=self._project.config,
            configSecretKeys=self._project.secret_keys,
            dryRun=self._recorder.mode is RunMode.PREVIEW,
            supportedFeatures=_ENGINE_FEATURES,
        )

    def RegisterResource(self, request: Any, context: Any) -> resource_pb2.RegisterResourceResponse:  # noqa: N802
        """Plan or create a resource."""

        def respond() -> resource_pb2.RegisterResourceResponse:
            declared = self._parse_declared_resource(request)
            if request.remote:
                raise ResourceError(
                    f"{declared.label}: "
                    f"{find_remote_component_problem(request.type) or 'remote components are not supported'}"
                )
            created = self._recorder.register(declared)
            return resource_pb2.RegisterResourceResponse(
                urn=created.urn, id=created.id or "", object=encode_properties(created.outputs)
            )

        return self._abort_on_error(context, respond)

    def ReadResource(self, request: Any, context: Any) -> resource_pb2.ReadResourceResponse:  # noqa: N802
        """Look up a resource that the program does not create."""

        def respond() -> resource_pb2.ReadResourceResponse:
            declared = Resource(
                urn=self._build_urn(request),
                type=request.type,
                name=request.name,
                parent=request.parent or None,
                id=None if request.id in ("", UNKNOWN_SENTINEL) else request.id,
                inputs=decode_struct(request.properties),
                dependencies=tuple(sorted(request.dependencies)),
                provider=_parse_provider_urn(request.provider),
            )
            resource = self._recorder.read(declared)
            return resource_pb2.ReadResourceResponse(
                urn=resource.urn, id=resource.id or "", properties=encode_properties(resource.outputs)
            )

        return self._abort_on_error(context, respond)

    def RegisterResourceOutputs(self, request: Any, _context: Any) -> Empty:  # noqa: N802
        """Store the outputs of a component or of the stack."""
        self._recorder.store_outputs(request.urn, decode_struct(request.outputs))
        return Empty()

    def Invoke(self, request: Any, context: Any) -> resource_pb2.ResourceInvokeResponse:  # noqa: N802
        """Return the result of a function."""

        def respond() -> resource_pb2.ResourceInvokeResponse:
            result = self._recorder.invoke(request.tok, decode_struct(request.args))
            response = resource_pb2.ResourceInvokeResponse()
            getattr(response, "return").CopyFrom(encode_properties(result))
            return response

        return self._abort_on_error(context, respond)

    def SignalAndWaitForShutdown(self, _request: Empty, _context: Any) -> Empty:  # noqa: N802
        """Return as soon as a program has registered all resources, since there are no delete hooks to wait for."""
        return Empty()

    def _abort_on_error(self, context: Any, respond: Callable[[], _Response]) -> _Response:
        """Return a response, or abort the call with the error, which is also recorded for the report."""
        try:
            return respond()
        except EngineError as error:
            self._recorder.failure = self._recorder.failure or error
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise

    def _build_urn(self, request: Any) -> str:
        return make_urn(self._project.stack, self._project.name, request.parent or None, request.type, request.name)

    def _parse_declared_resource(self, request: Any) -> Resource:
        return Resource(
            urn=self._build_urn(request),
            type=request.type,
            name=request.name,
            parent=request.parent or None,
            custom=request.custom,
            inputs=decode_struct(request.object),
            dependencies=tuple(sorted(request.dependencies)),
            property_dependencies={
                name: tuple(sorted(dependencies.urns))
                for name, dependencies in sorted(request.propertyDependencies.items())
                if dependencies.urns
            },
            provider=_parse_provider_urn(request.provider),
            protect=request.protect,
            retain_on_delete=request.retainOnDelete,
            deleted_with=request.deletedWith or None,
            aliases=tuple(self._build_alias_urn(request, alias) for alias in request.aliases),
            delete_before_replace=request.deleteBeforeReplace if request.deleteBeforeReplaceDefined else None,
            ignore_changes=tuple(request.ignoreChanges),
            replace_on_changes=tuple(request.replaceOnChanges),
            additional_secret_outputs=tuple(request.additionalSecretOutputs),
            timeouts={name.name: value for name, value in request.customTimeouts.ListFields()},
        )

    def _build_alias_urn(self, request: Any, alias: alias_pb2.Alias) -> str:
        """Return the URN of an alias. Unspecified parts are taken from the resource."""
        if alias.WhichOneof("alias") == "urn":
            return alias.urn
        spec = alias.spec
        parent = None if spec.noParent else spec.parentUrn or request.parent or None
        return make_urn(
            spec.stack or self._project.stack,
            spec.project or self._project.name,
            parent,
            spec.type or request.type,
            spec.name or request.name,
        )


class LogService(engine_pb2_grpc.EngineServicer):
    """The service for a program's log messages.

    Attributes:
        lines: Warnings and errors, in order.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._root = ""

    def Log(self, request: Any, _context: Any) -> Empty:  # noqa: N802
        """Store a message for the operator."""
        if request.severity in (engine_pb2.WARNING, engine_pb2.ERROR):
            self.lines.append(request.message.strip())
        return Empty()

    def GetRootResource(self, _request: Any, _context: Any) -> engine_pb2.GetRootResourceResponse:  # noqa: N802
        """Return the URN of the stack."""
        return engine_pb2.GetRootResourceResponse(urn=self._root)

    def SetRootResource(self, request: Any, _context: Any) -> engine_pb2.SetRootResourceResponse:  # noqa: N802
        """Store the URN of the stack."""
        self._root = request.urn
        return engine_pb2.SetRootResourceResponse()

    def RequirePulumiVersion(self, _request: Any, _context: Any) -> engine_pb2.RequirePulumiVersionResponse:  # noqa: N802
        """Accept any version range, since the installed SDK determines the version."""
        return engine_pb2.RequirePulumiVersionResponse()


@contextmanager
def serve_engine(monitor: ResourceMonitor | None, messages: LogService) -> Iterator[str]:
    """Serve the engine on a free local port, and yield the address."""
    server = grpc.server(ThreadPoolExecutor(max_workers=4), options=_CHANNEL_OPTIONS)
    if monitor:
        resource_pb2_grpc.add_ResourceMonitorServicer_to_server(monitor, server)
    engine_pb2_grpc.add_EngineServicer_to_server(messages, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None)


def _parse_provider_urn(reference: str) -> str | None:
    """Return the URN in a provider reference, `<urn>::<id>`."""
    return reference.rpartition("::")[0] or None
