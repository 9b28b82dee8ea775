"""Refusal cases of registry, vault, state store and volume claims."""

from tests.stacks.azure.refusals.planted import REMOVED, Case, changed

REGISTRY, VAULT, STORE = "containerregistry:Registry", "keyvault:Vault", "redisenterprise:RedisEnterprise"
DATABASE, ACCESS = "redisenterprise:Database", "redisenterprise:AccessPolicyAssignment"
PUBLIC_REGISTRY = {"sku.name": "Standard", "publicNetworkAccess": "Enabled"}
BACKUPS = {"aofEnabled": True, "rdbEnabled": True}
SIZE = "spec.resources.requests.storage"


CASES = (
    Case("registry-closed", REGISTRY, "registry", {"sku.name": "Standard"}, PUBLIC_REGISTRY),
    Case("registry-retention", REGISTRY, "registry", PUBLIC_REGISTRY, {**PUBLIC_REGISTRY,
         "policies.retentionPolicy.status": "disabled"}),
    Case("registry-export", REGISTRY, "registry", {"publicNetworkAccess": "Enabled"},
         {"publicNetworkAccess": "Enabled", "policies.exportPolicy.status": "enabled"}),
    Case("registry-retention-and-soft-delete", REGISTRY, "registry",
         {"policies.softDeletePolicy": {"status": "enabled"}},
         {"policies.softDeletePolicy": {"status": "enabled"}, "policies.retentionPolicy.status": "disabled"}),
    Case("vault-purge-protection", VAULT, "vault", {"properties.enablePurgeProtection": False},
         {"properties.enablePurgeProtection": REMOVED}, "enablePurgeProtection is false"),
    Case("vault-soft-delete", VAULT, "vault", {"properties.enableSoftDelete": False},
         {"properties.enableSoftDelete": REMOVED}),
    Case("vault-retention", VAULT, "vault", {"properties.softDeleteRetentionInDays": 91},
         {"properties.softDeleteRetentionInDays": 7}),
    Case("vault-retention-stays", VAULT, "vault", {"properties.softDeleteRetentionInDays": 30},
         {"properties.softDeleteRetentionInDays": 90}, "was 90 and would become 30", update=True),
    Case("vault-name", VAULT, "vault", {"vaultName": "voice--f2d19e"}, {"vaultName": "voice-f2d19e"}),
    Case("vault-name", VAULT, "vault", {"vaultName": "1voice"}, {"vaultName": "voice1"}),
    Case("store-zones", STORE, "state", {"zones": ["1", "2", "3"]}, {"zones": REMOVED}),
    Case("retired-store", STORE, "state", {"sku.name": "Enterprise_E10"}, {"sku.name": "Balanced_B10"}),
    Case("unclustered-store", DATABASE, "state", changed(STORE, "state", sku={"name": "Balanced_B50"}),
         changed(STORE, "state", sku={"name": "Balanced_B20"}), "the store's SKU Balanced_B50"),
    Case("database-name", DATABASE, "state", {"databaseName": "sessions"}, {}, 'databaseName is "sessions"'),
    Case("database-backups", DATABASE, "state", {"persistence": BACKUPS},
         {"persistence": {**BACKUPS, "aofEnabled": False}}),
    Case("access-policy", ACCESS, "vad-uses-state", {"accessPolicyName": "reader"}),
    Case("claim-shrinks", "core/v1:PersistentVolumeClaim", "model-cache", {SIZE: "512Gi"}, {SIZE: "1Ti"},
         "was 1024Gi and would become 512Gi", update=True),
)  # fmt: skip
