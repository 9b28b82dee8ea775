"""Refusal cases of the application gateway and its firewall."""

from tests.stacks.azure.refusals.planted import REMOVED, Case, Change, Damage, changed, without_resource
from voice_sandbox.azure.arm import SUBSCRIPTION_ID

GATEWAY, FIREWALL = "network:ApplicationGateway", "network:WebApplicationFirewallPolicy"
GRANT, GROUP = "authorization:RoleAssignment", "network:NetworkSecurityGroup"
RESOURCE_GROUP_ID = f"/subscriptions/{SUBSCRIPTION_ID}/resourceGroups/production-azure/providers/Microsoft.Network"
LISTENER = f"{RESOURCE_GROUP_ID}/applicationGateways/production-azure-edge/httpListeners"
RATE = {"name": "more", "ruleType": "RateLimitRule", "action": "Block"}


def gateway(row: str, wrong: Change, right: Change | None = None, says: str = "") -> Case:
    return Case(row, GATEWAY, "edge", wrong, right or {}, says)


def firewall(row: str, wrong: Change, right: Change | None = None, says: str = "") -> Case:
    return Case(row, FIREWALL, "edge", wrong, right or {}, says)


def control_rule(**values: object) -> Damage:
    return changed(GROUP, "edge", **{f"securityRules__1__{name}": value for name, value in values.items()})


CASES = (
    gateway("zones-of-ApplicationGateway", {"location": "westus"}, {"location": "westus", "zones": []}),
    gateway("retired-gateway", {"sku.tier": "WAF"}, {"sku.tier": "Standard_v2"}),
    gateway("firewall-of-tier", {"sku.tier": "Standard_v2"}, {"sku.tier": "Standard_v2", "firewallPolicy": REMOVED}),
    gateway("request-buffer", {"globalConfiguration.enableRequestBuffering": False},
            {"globalConfiguration.enableRequestBuffering": False, "sku.tier": "Standard_v2"}),
    gateway("gateway-capacity", {"autoscaleConfiguration": REMOVED}, {"autoscaleConfiguration": REMOVED,
            "sku.capacity": 2}),
    gateway("gateway-capacity", {"autoscaleConfiguration.minCapacity": 51},
            {"autoscaleConfiguration.minCapacity": 50}, "minCapacity is 51, maxCapacity 50"),
    gateway("gateway-instances", {"autoscaleConfiguration.maxCapacity": 126},
            {"autoscaleConfiguration.maxCapacity": 125}),
    gateway("routing-priority-missing", {"requestRoutingRules.0.priority": REMOVED}, {}, "priority of api is missing"),
    gateway("routing-priority-twice", {"requestRoutingRules.1.priority": 100},
            {"requestRoutingRules.1.priority": 103}, "both have priority 100"),
    gateway("rules-of-one-listener", {"requestRoutingRules.1.httpListener.id": f"{LISTENER}/api"}),
    gateway("listeners-of-one-port", {"httpListeners.1.hostName": "api.voice.example.com"},
            {"httpListeners.1.hostName": "apis.voice.example.com"}),
    gateway("gateway-references", {"requestRoutingRules.0.httpListener.id": f"{LISTENER}/apis"},
            {"requestRoutingRules.0.httpListener.id": f"{LISTENER}/media"}, "httpListeners/apis"),
    gateway("gateway-references", {"probes.0.name": "health"}, {}, "probes/api, which the gateway does not have"),
    gateway("listener-certificate", {"httpListeners.0.sslCertificate": REMOVED},
            {"httpListeners.0.sslCertificate": REMOVED, "httpListeners.0.protocol": "Http"}),
    gateway("vault-certificate", without_resource(GRANT, "edge-reads-certificate"), {}, ""),
    gateway("vault-certificate", {"identity": REMOVED}, {"identity": REMOVED, "sslCertificates": []}),
    gateway("gateway-subnet", changed("network:NetworkInterface", "jump",
                                      ipConfigurations__0__subnet__id=f"{RESOURCE_GROUP_ID}/virtualNetworks/production-azure-network"
                                                                      "/subnets/edge"),
            {}, 'network:NetworkInterface "jump"'),
    gateway("gateway-control-traffic", control_rule(destinationAddressPrefix="10.60.128.192/26"),
            control_rule(sourceAddressPrefix="Internet"), "65200-65535"),
    gateway("gateway-control-traffic", control_rule(access="Deny")),
    gateway("gateway-address", changed("network:PublicIPAddress", "edge", sku={"name": "Basic"})),
    gateway("probe-times", {"probes.0.timeout": 11}, {"probes.0.timeout": 10}, "at most the interval, 10"),
    gateway("probe-times", {"probes.0.unhealthyThreshold": 21}, {"probes.0.unhealthyThreshold": 20}),
    gateway("probe-host", {"probes.0.host": REMOVED},
            {"probes.0.host": REMOVED, "probes.0.pickHostNameFromBackendHttpSettings": True}),
    gateway("request-timeout", {"backendHttpSettingsCollection.0.requestTimeout": 86401},
            {"backendHttpSettingsCollection.0.requestTimeout": 86400}),
    firewall("rate-limit-action", {"customRules.0.action": "Allow"}, {"customRules.0.action": "Log"}),
    firewall("custom-rule-priorities", {"customRules.1": {**RATE, "priority": 10}},
             {"customRules.1": {**RATE, "priority": 11}}),
    firewall("rule-sets", {"managedRules.managedRuleSets.1.ruleSetType": "OWASP"}),
    firewall("rule-sets", {"managedRules.managedRuleSets": []}),
    firewall("body-limit", {"policySettings.maxRequestBodySizeInKb": 2001},
             {"policySettings.maxRequestBodySizeInKb": 2000}),
    firewall("upload-limit", {"policySettings.fileUploadLimitInMb": 4001},
             {"policySettings.fileUploadLimitInMb": 4000}, "is 4001; it must be at least 1 and at most 4000"),
)  # fmt: skip
