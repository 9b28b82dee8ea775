"""Rejections by the container registry, the key vault, Azure Managed Redis, and the API server (volume claims)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from voice_sandbox.azure.refusals.request import Request, RequestPart
from voice_sandbox.azure.refusals.row import (
    BAD_REQUEST,
    RejectionRule,
    allow_only,
    combine_conditions,
    forbid,
    has_value,
    negate,
    require_range,
    require_unchanged,
)
from voice_sandbox.azure.refusals.sources import AZURERM_DOCS, AZURERM_FILES, LEARN_URL

REGISTRY, VAULT = "containerregistry:Registry", "keyvault:Vault"
STORE, DATABASE = "redisenterprise:RedisEnterprise", "redisenterprise:Database"
ACCESS, CLAIM = "redisenterprise:AccessPolicyAssignment", "core/v1:PersistentVolumeClaim"
_REGISTRY_SOURCE_URL = f"{AZURERM_FILES}/containers/container_registry_resource.go"
_REDIS_SOURCE_URL = f"{AZURERM_FILES}/managedredis"
_CLI_ISSUES_URL = "https://github.com/Azure/azure-cli/issues"
_IS_NOT_PREMIUM = negate(has_value("sku.name", "Premium"))
_MAX_UNCLUSTERED_GB = 25


def _find_cluster_stores(request: Request) -> Iterator[RequestPart]:
    for _, store in request.iter_existing_resources(STORE):
        if store.get_text("clusterName") == request.body.get_text("clusterName"):
            yield store


def _find_unclustered_size_problems(request: Request) -> Iterator[str]:
    if has_value("clusteringPolicy", "NoCluster")(request.body):
        for store in _find_cluster_stores(request):
            size = re.search(r"_[A-Z]+(\d+)$", store.get_text("sku.name"))
            if size and int(size[1]) > _MAX_UNCLUSTERED_GB:
                yield f"clusteringPolicy is NoCluster, the store's SKU {store.get_text('sku.name')}"


def _find_name_problems(request: Request) -> Iterator[str]:
    name = request.body.get_text("vaultName")
    if name and (not re.fullmatch(r"[a-zA-Z].*[a-zA-Z0-9]", name) or "--" in name):
        yield f"vaultName is {name}"


def _find_backup_conflicts(request: Request) -> Iterator[str]:
    if request.body.get("persistence.aofEnabled") and request.body.get("persistence.rdbEnabled"):
        yield "persistence has aofEnabled and rdbEnabled"


def _find_retention_policy_problems(request: Request) -> Iterator[str]:
    kinds = [
        kind
        for kind in ("retentionPolicy", "softDeletePolicy")
        if request.body.get(f"policies.{kind}.status") == "enabled"
    ]
    if len(kinds) > 1:
        yield f"policies has {' and '.join(kinds)}"


_BYTES_PER_UNIT = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "": 1}


def _parse_bytes(quantity: str) -> float:
    match = re.fullmatch(r"([\d.]+)([KMGT]i)?", quantity)
    return float(match[1]) * _BYTES_PER_UNIT[match[2] or ""] if match else 0


def _find_size_decrease_problems(request: Request) -> Iterator[str]:
    path = "spec.resources.requests.storage"
    old, new = request.previous_body.get_text(path) if request.previous_body else "", request.body.get_text(path)
    if old and new and _parse_bytes(new) < _parse_bytes(old):
        yield f"{path} was {old} and would become {new}"


REJECTION_RULES = (
    RejectionRule(
        "registry-closed", REGISTRY, BAD_REQUEST, "Public network access can only be disabled for a Premium SKU",
        allow_only("publicNetworkAccess", "Enabled", when=_IS_NOT_PREMIUM),
        "set sku.name to Premium", f"{_REGISTRY_SOURCE_URL}#L389",
    ),
    RejectionRule(
        "registry-retention", REGISTRY, BAD_REQUEST,
        "A retention policy can only be applied when using the Premium SKU",
        allow_only("policies.retentionPolicy.status", "disabled", when=_IS_NOT_PREMIUM),
        "set sku.name to Premium", f"{_REGISTRY_SOURCE_URL}#L307",
    ),
    RejectionRule(
        "registry-export", REGISTRY, BAD_REQUEST,
        "To disable export of artifacts, public network access must be disabled too",
        allow_only(
            "policies.exportPolicy.status", "enabled",
            when=negate(
                combine_conditions(has_value("sku.name", "Premium"), has_value("publicNetworkAccess", "Disabled"))
            ),
        ),
        "set publicNetworkAccess to Disabled", f"{_REGISTRY_SOURCE_URL}#L313-L316",
    ),
    RejectionRule(
        "registry-retention-and-soft-delete", REGISTRY, BAD_REQUEST,
        "Azure Container Registry doesn't allow enabling both the retention policy and the soft delete policy",
        _find_retention_policy_problems, "remove one of the two",
        f"{LEARN_URL}/container-registry/container-registry-soft-delete-policy",
    ),
    RejectionRule(
        "vault-purge-protection", VAULT, BAD_REQUEST, 'The property "enablePurgeProtection" cannot be set to false',
        allow_only("properties.enablePurgeProtection", True),
        "omit it, or set it to true", "https://github.com/Azure/bicep/issues/5223",
    ),
    RejectionRule(
        "vault-soft-delete", VAULT, BAD_REQUEST, "Soft delete cannot be disabled",
        allow_only("properties.enableSoftDelete", True),
        "set enableSoftDelete to true", f"{_CLI_ISSUES_URL}/13247",
    ),
    RejectionRule(
        "vault-retention", VAULT, BAD_REQUEST, "The retention of deleted secrets must be between 7 and 90 days",
        require_range("properties.softDeleteRetentionInDays", 7, 90),
        "set softDeleteRetentionInDays to 90", f"{AZURERM_FILES}/keyvault/key_vault_resource.go#L209",
    ),
    RejectionRule(
        "vault-retention-stays", VAULT, BAD_REQUEST, "Once set, the retention policy interval cannot be changed",
        require_unchanged("properties.softDeleteRetentionInDays"),
        "do not change softDeleteRetentionInDays", f"{AZURERM_DOCS}/key_vault.html.markdown#L109",
    ),
    RejectionRule(
        "vault-name", VAULT, BAD_REQUEST,
        "A vault's name must start with a letter, end with a letter or digit, and have no consecutive hyphens",
        _find_name_problems, "choose another name for the deployment",
        f"{AZURERM_FILES}/keyvault/validate/vault_name.go",
    ),
    RejectionRule(
        "store-zones", STORE, BAD_REQUEST, "Specifying zones for the SKU is not supported: available zones are used "
            "automatically",
        forbid("zones"), "remove zones", "https://github.com/langchain-ai/terraform/pull/107",
    ),
    RejectionRule(
        "retired-store", STORE, BAD_REQUEST, "Stores with Redis Enterprise SKUs can no longer be created",
        lambda request: (
            f"sku.name is {name}" for name in [request.body.get_text("sku.name")] if name.startswith("Enterprise")
        ),
        "use Balanced_B5 (callers.state.sku)", f"{AZURERM_DOCS}/managed_redis.html.markdown#L132",
    ),
    RejectionRule(
        "unclustered-store", DATABASE, BAD_REQUEST, "A store without clustering can have at most 25 GB",
        _find_unclustered_size_problems, "use Balanced_B20 or smaller (callers.state.sku)",
        f"{LEARN_URL}/redis/choose-clustering-policy",
    ),
    RejectionRule(
        "database-name", DATABASE, BAD_REQUEST, "A store has a single database, which must be named 'default'",
        allow_only("databaseName", "default"),
        "name it default", "https://github.com/Azure/bicep-registry-modules/issues/6868",
    ),
    RejectionRule(
        "database-backups", DATABASE, BAD_REQUEST,
        "A database can be persisted by either append-only file or snapshots",
        _find_backup_conflicts, "remove one of the two",
        f"{_REDIS_SOURCE_URL}/managed_redis_resource.go#L210-L224",
    ),
    RejectionRule(
        "access-policy", ACCESS, BAD_REQUEST, "The only access policy is default",
        allow_only("accessPolicyName", "default"),
        "set accessPolicyName to default", f"{LEARN_URL}/redis/entra-for-authentication",
    ),
    RejectionRule(
        "claim-shrinks", CLAIM, "Forbidden", "A volume claim can not be less than before",
        _find_size_decrease_problems, "do not change model_cache_gib, or accept the replacement of the claim",
        "https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/core/validation/validation.go",
    ),
)  # fmt: skip
