"""What lies in key vaults: the certificate of callers' edge, and the secrets that gateways and agents are told."""

from collections.abc import Iterator

from azure.core.exceptions import ResourceNotFoundError

from blueprint.azure import names
from blueprint.file.model.agents import AgentPods, Endpoint
from ops.preflight.azure.account import AREA, Account
from ops.preflight.report import Row, Status, answer

API = "2023-07-01"
"""Of vaults and of the names of their secrets in Azure Resource Manager, which never says a secret's value.
https://learn.microsoft.com/rest/api/keyvault/keyvault/secrets/get"""


def vault_rows(account: Account) -> Iterator[Row]:
    """Look up the certificate's vault, and each secret once the cluster's program has made the deployment's own."""
    azure = account.deployment.azure
    if azure.callers is None:
        return
    given, own = azure.callers.edge.certificate.vault_id, _own(account)
    found = _exists(account, given)
    remedy = "" if found else "correct azure.callers.edge.certificate.vault_id, or grant yourself Reader on the vault"
    asked = f"vault of the certificate {azure.callers.edge.certificate.name}"
    yield answer(AREA, asked, "it exists" if found else f"no {given}", "a vault that exists", blocks=remedy)
    made = _exists(account, own)
    for name, holds in _secrets(azure.agents).items():
        asked, vault = f"secret {name}", own.rpartition("/")[2]
        if not made:
            yield Row(AREA, asked, Status.NOT_ASKED, f"vault {vault} comes with the cluster", holds)
            continue
        there = _exists(account, f"{own}/secrets/{name}")
        remedy = "" if there else f"az keyvault secret set --vault-name {vault} --name {name} --file <file>"
        yield answer(AREA, asked, "it exists" if there else "no such secret", holds, blocks=remedy)


def _own(account: Account) -> str:
    group, vault = (
        names.resource_group(account.deployment),
        names.vault(account.deployment, account.subscription),
    )
    return f"/subscriptions/{account.subscription}/resourceGroups/{group}/providers/Microsoft.KeyVault/vaults/{vault}"


def _secrets(agents: AgentPods | None) -> dict[str, str]:
    """Return what each secret holds, by its name."""
    found: dict[str | None, str] = {names.TOKEN_KEY_SECRET: "a key that signs tokens of sessions"}
    if agents:
        found[agents.prompt_secret] = "the prompt of the agents"
        for engine, what in ((agents.chat, "the language model"), (agents.speech, "the engine that speaks")):
            if isinstance(engine, Endpoint):
                found[engine.key_secret] = f"the key of {what}"
    return {name: holds for name, holds in found.items() if name}


def _exists(account: Account, resource: str) -> bool:
    try:
        account.providers.resources.get_by_id(resource, api_version=API)
    except ResourceNotFoundError:
        return False
    return True
