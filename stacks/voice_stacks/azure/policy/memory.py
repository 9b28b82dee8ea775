"""Rules on quantities: valid syntax, and sufficient memory, CPUs and shared memory."""

from collections.abc import Iterator

from voice_blueprint.engines.sizing.host import SHARED_MEMORY_GIB_PER_GPU
from voice_stacks.azure.policy.engines import list_engines
from voice_stacks.azure.policy.pods import format_gib, list_pods
from voice_stacks.azure.policy.quantities import QuantityError, parse_gib, parse_quantity, parse_quantity_or_zero
from voice_stacks.azure.policy.rules import Resource, Stack, Violation, rule
from voice_stacks.azure.policy.values import Value

QUANTITY_MAP_KEYS = ("limits", "requests", "hard", "default", "defaultRequest", "capacity")


@rule(
    "quantities-parse",
    "Every amount of memory, CPU or storage must be a valid Kubernetes quantity.",
    remedy="write it as the API server does: 400Gi, 500m",
    source="https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity",
)
def check_quantities_are_valid(stack: Stack) -> Iterator[Violation]:
    for resource in stack.resources:
        if resource.type.startswith("kubernetes:"):
            for path, value in _find_quantities(resource):
                try:
                    parse_quantity(value.text)
                except QuantityError as error:
                    yield Violation(resource.urn, f"{path}: {error}")


@rule(
    "requests-below-limits",
    "Every container must have a memory limit, and requests that do not exceed its limits.",
    remedy="set limits that are at least the requests",
    source="https://kubernetes.io/docs/concepts/configuration/manage-resources-containers",
)
def check_requests_below_limits(stack: Stack) -> Iterator[Violation]:
    for pod in list_pods(stack):
        for container in pod.containers:
            resources = container.spec["resources"]
            for kind, request in resources["requests"].as_text_dict().items():
                limit = resources["limits"][kind].text
                if limit and parse_quantity_or_zero(request) > parse_quantity_or_zero(limit):
                    yield Violation(
                        pod.urn, f"{pod.name}/{container.name} requests {kind} {request}; its limit is {limit}"
                    )
            if not resources["limits"]["memory"].text:
                yield Violation(
                    pod.urn, f"{pod.name}/{container.name} has no memory limit: a memory leak can exhaust the node"
                )


@rule(
    "shared-memory-is-enough",
    "Every engine must have a /dev/shm in memory that is large enough for its number of GPUs.",
    remedy="mount an emptyDir with medium: Memory at /dev/shm",
    source="https://docs.vllm.ai/en/stable/deployment/k8s.html",
)
def check_shared_memory_is_enough(stack: Stack) -> Iterator[Violation]:
    for engine in list_engines(stack):
        required_gib = SHARED_MEMORY_GIB_PER_GPU * max(1, engine.tensor_parallel_size)
        actual_gib = engine.pod.calculate_shared_memory_gib(engine.container)
        if actual_gib is None:
            yield Violation(
                engine.pod.urn, f"{engine.name} has the default of 64 MiB of /dev/shm and requires {required_gib:g} GiB"
            )
        elif actual_gib < required_gib:
            yield Violation(
                engine.pod.urn,
                f"{engine.name} has {format_gib(actual_gib)} of /dev/shm and requires {required_gib:g} GiB",
            )


@rule(
    "memory-volumes-fit-pods",
    "A volume in memory must not be larger than the memory limit of its pod.",
    remedy="lower sizeLimit, or raise the containers' limits",
    source="https://kubernetes.io/docs/concepts/storage/volumes#emptydir",
)
def check_memory_volumes_fit_pods(stack: Stack) -> Iterator[Violation]:
    for pod in list_pods(stack):
        for volume in pod.spec["volumes"]:
            source = volume["emptyDir"]
            size = parse_gib(source["sizeLimit"].text)
            if source["medium"].text == "Memory" and size > pod.memory_gib:
                yield Violation(
                    pod.urn,
                    f"{pod.name}: volume {volume['name'].text} in memory has {format_gib(size)}; the pod's memory "
                    f"limit is {format_gib(pod.memory_gib)}",
                )


def _find_quantities(resource: Resource) -> Iterator[tuple[str, Value]]:
    for path, value in resource.props.iter_nested():
        key = path.rpartition(".")[2]
        if key in QUANTITY_MAP_KEYS:
            yield from ((f"{path}.{kind}", item) for kind, item in value.items() if not item.is_unknown)
        elif key == "sizeLimit" and not value.is_unknown:
            yield path, value
