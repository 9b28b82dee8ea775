"""What Azure says to a deployment file, asked through its management SDKs with the operator's credentials."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from uuid import UUID

from azure.core.exceptions import AzureError

from blueprint.file.model.deployment import Deployment
from ops.preflight.azure import quotas, registrations, roles, sizes, vaults
from ops.preflight.azure.account import AREA, Account, connect
from ops.preflight.azure.refusals import explain
from ops.preflight.questions import ask_all, not_asked
from ops.preflight.quota import QUOTAS
from ops.preflight.report import Row

SUBSCRIPTIONS = ("ARM_SUBSCRIPTION_ID", "AZURE_SUBSCRIPTION_ID")
"""Variables that name the subscription, the first for Pulumi's provider too."""


TOPICS: dict[str, Callable[[Account], Iterable[Row]]] = {
    "identity": roles.identity_rows,
    "permissions of the deploy": roles.permission_rows,
    "right to assign roles": roles.assignment_rows,
    "resource providers": registrations.provider_rows,
    "encryption at host": registrations.encryption_rows,
    "administrators of the cluster": roles.administrator_rows,
    f"compute {QUOTAS}": quotas.compute_rows,
    f"network {QUOTAS}": quotas.network_rows,
    "VM sizes in the location and its zones": sizes.size_rows,
    "vaults, certificate and secrets": vaults.vault_rows,
}
"""Everything that is asked, in this order."""


def examine(
    deployment: Deployment, resources: Counter[str], environment: Mapping[str, str] = os.environ
) -> Iterator[Row]:
    """Ask Azure everything that the deploy depends on, or say what was not asked.

    Args:
        deployment: A deployment that has passed its checks.
        resources: What its cluster program creates, by type such as ``network:NatGateway``.
        environment: Where the subscription is named.
    """
    subscription = next((environment[name] for name in SUBSCRIPTIONS if environment.get(name)), None)
    if subscription is None or not _is_uuid(subscription):
        because = "no subscription is named" if subscription is None else f"{subscription!r} is no subscription id"
        remedy = f"sign in with `az login`, and set {SUBSCRIPTIONS[0]}"
        yield from not_asked(AREA, TOPICS, because, remedy)
        return
    account = connect(deployment, resources, subscription)
    questions = {about: partial(ask, account) for about, ask in TOPICS.items()}
    yield from ask_all(AREA, questions, (AzureError,), explain)


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
