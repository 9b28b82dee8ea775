"""Rules on pod identities: each must use the identity, service account and store user of its own tier."""

from collections.abc import Iterator, Mapping

from voice_blueprint.azure.contract import COMPONENT_LABEL, Component
from voice_blueprint.azure.names import SERVICE_ACCOUNT_BY_TIER, ClusterOutput
from voice_blueprint.contract.environment import VALKEY_PASSWORD_FILE
from voice_stacks.azure.policy.pods import PodTemplate, list_pods
from voice_stacks.azure.policy.rules import Stack, Violation, stack_rule
from voice_stacks.azure.policy.values import Value

TOKEN_AUDIENCE = "api://AzureADTokenExchange"  # noqa: S105
"""Audience for which Entra accepts tokens from a cluster:
https://learn.microsoft.com/azure/aks/workload-identity-overview."""
TOKEN_FILE_VARIABLE = "AZURE_FEDERATED_TOKEN_FILE"  # noqa: S105  the name of a variable
STATE_TOKEN_FILE_VARIABLE = "VOICE_STATE_TOKEN_FILE"  # noqa: S105  the name of a variable
CLIENT_ID_VARIABLE, STATE_USER_VARIABLE = "AZURE_CLIENT_ID", "VOICE_VALKEY_USER"


def get_cluster_outputs(stack: Stack) -> Value:
    """Return the outputs from the cluster's project that the workloads read."""
    return next((each.props["outputs"] for each in stack.find_resources(":StackReference")), Value())


@stack_rule(
    "tiers-are-themselves",
    "A tier must use its own service account, identity and state-store user, with a token for Microsoft Entra.",
    remedy="use the identity and user of the same tier from the cluster project's outputs",
    source="https://learn.microsoft.com/azure/redis/entra-for-authentication",
)
def check_tiers_use_own_identity(stack: Stack) -> Iterator[Violation]:
    identities = get_cluster_outputs(stack)[ClusterOutput.CALLER_IDENTITIES]
    for pod in list_pods(stack):
        tier = pod.labels.get(COMPONENT_LABEL, "")
        if tier not in {component.value for component in SERVICE_ACCOUNT_BY_TIER}:
            continue
        account, desired = pod.spec["serviceAccountName"].text, SERVICE_ACCOUNT_BY_TIER[Component(tier)].name
        if account and account != desired:
            yield Violation(pod.urn, f"{pod.name} uses service account {account}; its identity trusts {desired}")
        own_values = {
            CLIENT_ID_VARIABLE: identities.get(tier, "clientId"),
            STATE_USER_VARIABLE: identities.get(tier, "principalId"),
        }
        written = {container.environment.get(STATE_TOKEN_FILE_VARIABLE, "") for container in pod.running_containers}
        for container in pod.running_containers:
            yield from _find_identity_violations(pod, container.environment, own_values)
            read = container.environment.get(VALKEY_PASSWORD_FILE.name, "")
            if read and read not in written:
                yield Violation(
                    pod.urn, f"{pod.name}/{container.name} reads its token from {read}, which no container writes"
                )
        yield from _find_token_violations(pod)
    for resource in stack.find_resources(":SecretProviderClass"):
        name, actual = resource.props.get("metadata", "name").text, resource.props.get("spec", "parameters", "clientID")
        client = identities.get(name.removesuffix("-secrets"), "clientId")
        if client.text and actual.text and actual.text != client.text:
            yield Violation(resource.urn, f"{name} reads the key vault with the identity of another tier")
    for resource in stack.find_resources(":TriggerAuthentication"):
        actual, client = (
            resource.props.get("spec", "podIdentity", "identityId"),
            get_cluster_outputs(stack)[ClusterOutput.KEDA_CLIENT_ID],
        )
        if client.text and actual.text and actual.text != client.text:
            yield Violation(resource.urn, f"{resource.name} reads metrics with an identity other than KEDA's")


def _find_identity_violations(
    pod: PodTemplate, environment: Mapping[str, str], own_values: Mapping[str, Value]
) -> Iterator[Violation]:
    for name, desired in own_values.items():
        actual = environment.get(name)
        if actual and desired.text and actual != desired.text:
            yield Violation(pod.urn, f"{pod.name} has {name} {actual}; the value of its tier is {desired.text}")


def _find_token_violations(pod: PodTemplate) -> Iterator[Violation]:
    files = {}
    for volume in pod.spec["volumes"]:
        for source in volume.get("projected", "sources"):
            token = source["serviceAccountToken"]
            if token and token["audience"].text != TOKEN_AUDIENCE:
                yield Violation(
                    pod.urn, f"the token of {pod.name} has the audience {token['audience'].text or 'of the API server'}"
                )
            files[volume["name"].text] = token["path"].text
    for container in pod.running_containers:
        path = container.environment.get(TOKEN_FILE_VARIABLE, "")
        tokens = {f"{mount}/{files[name]}" for mount, name in container.volume_by_mount_path.items() if name in files}
        if path and path not in tokens:
            yield Violation(
                pod.urn,
                f"{pod.name}/{container.name} reads its token from {path}, but it is mounted at {sorted(tokens)}",
            )
