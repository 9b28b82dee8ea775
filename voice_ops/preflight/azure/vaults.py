"""Checks for key vaults: the edge certificate, and the secrets for gateways and agents."""

from collections.abc import Iterator

from azure.core.exceptions import ResourceNotFoundError

from voice_blueprint.azure import names
from voice_blueprint.file.model.agents import AgentPods, Endpoint
from voice_ops.preflight.azure.account import REPORT_AREA, Account
from voice_ops.preflight.report import CheckResult, CheckStatus, create_check_result

KEY_VAULT_API_VERSION = "2023-07-01"
"""API version for vaults and the names of their secrets in Azure Resource Manager, which never returns a secret's
value. https://learn.microsoft.com/rest/api/keyvault/keyvault/secrets/get"""


def check_vaults(account: Account) -> Iterator[CheckResult]:
    """Check the vault with the certificate and, if the deployment's own vault exists, each required secret."""
    azure = account.deployment.azure
    if azure.callers is None:
        return
    vault_id, own_vault_id = azure.callers.edge.certificate.vault_id, _build_own_vault_id(account)
    result = _resource_exists(account, vault_id)
    remedy = "" if result else "correct azure.callers.edge.certificate.vault_id, or grant yourself Reader on the vault"
    question = f"vault of the certificate {azure.callers.edge.certificate.name}"
    yield create_check_result(
        REPORT_AREA, question, "it exists" if result else f"no {vault_id}", "a vault that exists", blocks=remedy
    )
    exists = _resource_exists(account, own_vault_id)
    for name, content in _collect_required_secrets(azure.agents).items():
        question, vault = f"secret {name}", own_vault_id.rpartition("/")[2]
        if not exists:
            yield CheckResult(
                REPORT_AREA, question, CheckStatus.SKIPPED, f"the cluster deploy creates the vault {vault}", content
            )
            continue
        secret_exists = _resource_exists(account, f"{own_vault_id}/secrets/{name}")
        remedy = "" if secret_exists else f"az keyvault secret set --vault-name {vault} --name {name} --file <file>"
        yield create_check_result(
            REPORT_AREA, question, "it exists" if secret_exists else "no such secret", content, blocks=remedy
        )


def _build_own_vault_id(account: Account) -> str:
    group, vault = (
        names.build_resource_group_name(account.deployment),
        names.build_vault_name(account.deployment, account.subscription),
    )
    return f"/subscriptions/{account.subscription}/resourceGroups/{group}/providers/Microsoft.KeyVault/vaults/{vault}"


def _collect_required_secrets(agents: AgentPods | None) -> dict[str, str]:
    """Return the expected contents of each secret, by its name."""
    results: dict[str | None, str] = {names.TOKEN_KEY_SECRET_NAME: "the key that signs session tokens"}
    if agents:
        results[agents.prompt_secret] = "the prompt of the agents"
        results[agents.tools_key_secret] = "the key that signs requests to the tools"
        results[agents.twilio.token_secret if agents.twilio else None] = "the auth token of the Twilio account"
        for engine, description in ((agents.chat, "the language model"), (agents.speech, "the speech engine")):
            if isinstance(engine, Endpoint):
                results[engine.key_secret] = f"the key of {description}"
    return {name: content for name, content in results.items() if name}


def _resource_exists(account: Account, resource: str) -> bool:
    try:
        account.resource_client.resources.get_by_id(resource, api_version=KEY_VAULT_API_VERSION)
    except ResourceNotFoundError:
        return False
    return True
