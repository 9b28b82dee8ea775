"""Rejections by Application Gateway and its web application firewall."""

from __future__ import annotations

from collections.abc import Iterator

from voice_sandbox.azure.refusals.networks import ADDRESS, GROUP, SUBNET, zone_row
from voice_sandbox.azure.refusals.request import Part, Request
from voice_sandbox.azure.refusals.roles import Role, is_granted, principal_ids
from voice_sandbox.azure.refusals.row import (
    BAD,
    Refusal,
    allow_only,
    for_each,
    has_value,
    is_set,
    require,
    require_range,
    require_unique,
)
from voice_sandbox.azure.refusals.sources import AZURERM, AZURERM_FILES, LEARN

GATEWAY, FIREWALL = "network:ApplicationGateway", "network:WebApplicationFirewallPolicy"
_FILE = f"{AZURERM_FILES}/network/application_gateway_resource.go"
_WAF_FILE = f"{AZURERM_FILES}/network/web_application_firewall_policy_resource.go"
_INGRESS = "https://github.com/Azure/application-gateway-kubernetes-ingress"
_MAX_DURATION_S, _MAX_FAILURES = 86_400, 20
_CONTROL_PORTS = "65200-65535"
_PRIMARY_RULE_SETS = ("OWASP", "Microsoft_DefaultRuleSet")
_REFERENCE_NAMES = {
    "httpListeners": ("frontendIPConfiguration", "frontendPort", "sslCertificate"),
    "requestRoutingRules": ("httpListener", "backendAddressPool", "backendHttpSettings"),
    "backendHttpSettingsCollection": ("probe",),
}


def _listener_id(rule: Part) -> object:
    return rule.text("httpListener.id") or None


def _listener_address(listener: Part) -> object:
    hosts = [listener.text("hostName"), *listener.texts("hostNames")]
    return (listener.text("frontendIPConfiguration.id"), listener.text("frontendPort.id"), *sorted(filter(None, hosts)))


def _priority_problems(rule: Part) -> Iterator[str]:
    if rule.number("priority") is None:
        yield f"{rule.path_to('priority')} of {rule.text('name')} is missing"


def _reference_problems(request: Request) -> Iterator[str]:
    """Yield the references to parts that the request does not contain."""
    for collection, names in _REFERENCE_NAMES.items():
        for part in request.body.parts(collection):
            for name in names:
                *_, kind, part_name = ("", "", *part.text(f"{name}.id").split("/"))
                part_names = {other.text("name") for other in request.body.parts(kind)} if kind else set()
                if part_name and part_name not in part_names:
                    yield f"{part.path_to(name)} is {kind}/{part_name}, which the gateway does not have"


def _certificate_problems(listener: Part) -> Iterator[str]:
    if listener.text("protocol") == "Https" and not listener.text("sslCertificate.id"):
        yield f"{listener.path_to('sslCertificate')} of {listener.text('name')} is missing"


def _vault_problems(request: Request) -> Iterator[str]:
    from_vault = [each for each in request.body.parts("sslCertificates") if each.get("keyVaultSecretId")]
    identities = principal_ids(request, request.body.texts("identity.userAssignedIdentities"))
    if from_vault and not identities:
        yield "sslCertificates come from a key vault, and the gateway has no user-assigned identity"
    vaults = [grant.text("scope") for _, grant in request.guaranteed_resources("authorization:RoleAssignment")]
    for part in from_vault:
        vault = part.text("keyVaultSecretId").removeprefix("https://").partition(".")[0]
        scopes = [scope for scope in vaults if scope.lower().endswith(f"/vaults/{vault.lower()}")]
        if identities and not any(
            is_granted(request, identities, scope, Role.KEY_VAULT_SECRETS_USER) for scope in scopes
        ):
            yield (
                f"{part.path_to('keyVaultSecretId')} is in {vault}, where the gateway's identity has no permission to "
                "read secrets"
            )


def _gateway_subnets(request: Request) -> Iterator[tuple[str, Part]]:
    for part in request.body.parts("gatewayIPConfigurations"):
        identifier = part.text("subnet.id")
        if subnet := request.find_by_id(SUBNET, identifier):
            yield identifier, subnet


def _shared_subnet_problems(request: Request) -> Iterator[str]:
    for identifier, subnet in _gateway_subnets(request):
        for kind, path in (("network:NetworkInterface", "ipConfigurations"), ("network:PrivateEndpoint", "subnet")):
            for resource, body in request.existing_resources(kind):
                ids = [part.text("subnet.id") for part in body.parts(path)] or [body.text("subnet.id")]
                if identifier.lower() in map(str.lower, ids):
                    yield f"subnet {subnet.text('subnetName')} has {resource.label} too"


def _control_traffic_problems(request: Request) -> Iterator[str]:
    for _, subnet in _gateway_subnets(request):
        group = request.find_by_id(GROUP, subnet.text("networkSecurityGroup.id"))
        if group and not any(_allows_control_traffic(rule) for rule in group.parts("securityRules")):
            yield (
                f"security group {group.text('networkSecurityGroupName')} does not allow GatewayManager on the ports "
                f"{_CONTROL_PORTS} of any destination"
            )


def _allows_control_traffic(rule: Part) -> bool:
    return (
        rule.text("direction") == "Inbound"
        and rule.text("access") == "Allow"
        and rule.text("sourceAddressPrefix") in {"GatewayManager", "Internet", "*"}
        and rule.text("destinationAddressPrefix") == "*"
        and rule.text("destinationPortRange") in {_CONTROL_PORTS, "*"}
    )


def _address_sku_problems(request: Request) -> Iterator[str]:
    for part in request.body.parts("frontendIPConfigurations"):
        address = request.find_by_id(ADDRESS, part.text("publicIPAddress.id"))
        if address and address.text("sku.name") not in {"Standard", "StandardV2"}:
            yield f"{part.path_to('publicIPAddress')} is of SKU {address.text('sku.name') or 'Basic'}"


def _capacity_problems(request: Request) -> Iterator[str]:
    body = request.body
    low, high = (body.number(f"autoscaleConfiguration.{name}Capacity") for name in ("min", "max"))
    if low is None and body.number("sku.capacity") is None:
        yield "sku.capacity and autoscaleConfiguration are both missing"
    if low is not None and high is not None and low > high:
        yield f"autoscaleConfiguration.minCapacity is {low:g}, maxCapacity {high:g}"


def _probe_problems(probe: Part) -> Iterator[str]:
    interval, timeout, failures = (probe.number(name) for name in ("interval", "timeout", "unhealthyThreshold"))
    for name, value, high in (("interval", interval, _MAX_DURATION_S), ("timeout", timeout, _MAX_DURATION_S),
                              ("unhealthyThreshold", failures, _MAX_FAILURES)):  # fmt: skip
        if value is not None and not 1 <= value <= high:
            yield f"{probe.path_to(name)} is {value:g}; it must be at least 1 and at most {high}"
    if interval is not None and timeout is not None and timeout > interval:
        yield f"{probe.path_to('timeout')} is {timeout:g}; it must be at most the interval, {interval:g}"


def _probe_host_problems(probe: Part) -> Iterator[str]:
    if bool(probe.get("host")) == bool(probe.get("pickHostNameFromBackendHttpSettings")):
        yield (
            f"{probe.path} has host {probe.text('host') or 'missing'}; it must have a host, or use that of its settings"
        )


def _timeout_problems(settings: Part) -> Iterator[str]:
    value = settings.number("requestTimeout")
    if value is not None and not 1 <= value <= _MAX_DURATION_S:
        yield f"{settings.path_to('requestTimeout')} is {value:g}; it must be at least 1 and at most {_MAX_DURATION_S}"


def _rate_action_problems(rule: Part) -> Iterator[str]:
    if rule.text("ruleType") == "RateLimitRule" and rule.text("action") == "Allow":
        yield f"{rule.path_to('action')} of {rule.text('name')} is Allow; it must be Block or Log"


def _rule_priority(rule: Part) -> object:
    return rule.number("priority")


def _rule_set_problems(request: Request) -> Iterator[str]:
    kinds = [each.text("ruleSetType") for each in request.body.parts("managedRules.managedRuleSets")]
    primary = [kind for kind in kinds if kind in _PRIMARY_RULE_SETS]
    if len(primary) != 1:
        yield (
            f"managedRuleSets are {', '.join(kinds) or 'missing'}; they must include one of "
            f"{' and '.join(_PRIMARY_RULE_SETS)}"
        )


ROWS = (
    zone_row(GATEWAY),
    Refusal(
        "retired-gateway", GATEWAY, BAD, "Gateways with the SKUs Standard and WAF of version 1 can no longer be "
            "created",
        require("sku.tier", "Standard_v2", "WAF_v2", "Basic"),
        "set sku.tier to WAF_v2", f"{_FILE}#L5191-L5193",
    ),
    Refusal(
        "firewall-of-tier", GATEWAY, BAD, "A firewall policy requires the tier WAF_v2",
        require("sku.tier", "WAF_v2", when=is_set("firewallPolicy.id")),
        "set sku.tier to WAF_v2", f"{LEARN}/web-application-firewall/ag/ag-overview",
    ),
    Refusal(
        "request-buffer", GATEWAY, BAD, "Request buffering can't be disabled with the WAF SKU",
        allow_only("globalConfiguration.enableRequestBuffering", True, when=has_value("sku.tier", "WAF_v2")),
        "set enableRequestBuffering to true", f"{LEARN}/application-gateway/proxy-buffers",
    ),
    Refusal(
        "gateway-capacity", GATEWAY, BAD, "A gateway must have either a capacity or autoscaling bounds",
        _capacity_problems, "set autoscaleConfiguration.minCapacity and maxCapacity", f"{_FILE}#L5148-L5150",
    ),
    Refusal(
        "gateway-instances", GATEWAY, BAD, "A gateway has at most 125 instances",
        require_range("autoscaleConfiguration.maxCapacity", 2, 125),
        "set maxCapacity to 125 or less", f"{_FILE}#L1027",
    ),
    Refusal(
        "routing-priority-missing", GATEWAY, "ApplicationGatewayRequestRoutingRulePriorityCannotBeEmpty",
        "Priority for the request routing rule cannot be empty",
        for_each("requestRoutingRules", _priority_problems), "give each rule a priority", f"{AZURERM}/issues/19874",
    ),
    Refusal(
        "routing-priority-twice", GATEWAY, BAD, "Priority must be unique across all the request routing rules",
        require_unique("requestRoutingRules", _rule_priority, "priority"),
        "assign a unique priority to each rule", f"{_INGRESS}/issues/1487",
    ),
    Refusal(
        "rules-of-one-listener", GATEWAY, "ApplicationGatewayRequestRoutingRulesUsingSameHttpListener",
        "Two request routing rules are using the same HTTP listener",
        require_unique("requestRoutingRules", _listener_id, "listener"),
        "use a separate listener for each rule", f"{AZURERM}/issues/8767",
    ),
    Refusal(
        "listeners-of-one-port", GATEWAY, "ApplicationGatewayHttpListenersUsingSameFrontendPort",
        "Two HTTP listeners are using the same frontend port and host name",
        require_unique("httpListeners", _listener_address, "address"),
        "use a separate host name for each listener", f"{_INGRESS}/pull/692",
    ),
    Refusal(
        "gateway-references", GATEWAY, "InvalidResourceReference", "A referenced resource was not found",
        _reference_problems, "refer to an existing part of the gateway",
        "https://github.com/Azure/terraform-provider-azapi/issues/200",
    ),
    Refusal(
        "listener-certificate", GATEWAY, BAD, "A listener with TLS must have a certificate",
        for_each("httpListeners", _certificate_problems), "name one of sslCertificates",
        f"{LEARN}/application-gateway/configuration-listeners#protocol",
    ),
    Refusal(
        "vault-certificate", GATEWAY, "ApplicationGatewayKeyVaultSecretException",
        "Problem occurred while accessing and validating KeyVault Secrets",
        _vault_problems, "grant Key Vault Secrets User to the gateway's identity, and depend on the role assignment",
        "https://github.com/MicrosoftDocs/azure-docs/issues/33157",
    ),
    Refusal(
        "gateway-subnet", GATEWAY, BAD, "A subnet with an application gateway can only contain application gateways",
        _shared_subnet_problems, "use a separate subnet for the gateway",
        f"{LEARN}/application-gateway/configuration-infrastructure#virtual-network-and-dedicated-subnet",
    ),
    Refusal(
        "gateway-control-traffic", GATEWAY, "ApplicationGatewaySubnetInboundTrafficBlockedByNetworkSecurityGroup",
        "The network security group blocks incoming traffic on ports 65200 - 65535",
        _control_traffic_problems, "allow GatewayManager in at 65200-65535",
        "https://github.com/Azure/AKS-Construction/issues/333",
    ),
    Refusal(
        "gateway-address", GATEWAY, BAD, "A gateway of version 2 requires a public IP address of SKU Standard",
        _address_sku_problems, "set sku.name of the address to Standard",
        f"{LEARN}/application-gateway/configuration-frontend-ip",
    ),
    Refusal(
        "probe-times", GATEWAY, BAD, "The time-out of a probe must not be greater than its interval",
        for_each("probes", _probe_problems), "set timeout below interval", f"{_FILE}#L5256-L5260",
    ),
    Refusal(
        "probe-host", GATEWAY, BAD, "A probe must have a host, or use that of its settings",
        for_each("probes", _probe_host_problems), "set host", f"{_FILE}#L5235-L5237",
    ),
    Refusal(
        "request-timeout", GATEWAY, BAD, "The request timeout must be between 1 and 86,400 s",
        for_each("backendHttpSettingsCollection", _timeout_problems),
        "lower idle_timeout_s of edge or agents", f"{_FILE}#L283",
    ),
    Refusal(
        "rate-limit-action", FIREWALL, "ApplicationGatewayFirewallCustomRuleInvalidAction",
        "The action is not valid for the rule type RateLimitRule",
        for_each("customRules", _rate_action_problems), "set action to Block", f"{AZURERM}/pull/28987",
    ),
    Refusal(
        "custom-rule-priorities", FIREWALL, BAD, "Priorities of custom rules must be unique",
        require_unique("customRules", _rule_priority, "priority"),
        "assign a unique priority to each rule", f"{LEARN}/web-application-firewall/ag/custom-waf-rules-overview",
    ),
    Refusal(
        "rule-sets", FIREWALL, BAD, "A policy must have exactly one primary rule set",
        _rule_set_problems, "name Microsoft_DefaultRuleSet alone",
        f"{LEARN}/web-application-firewall/ag/application-gateway-crs-rulegroups-rules",
    ),
    Refusal(
        "body-limit", FIREWALL, BAD, "The firewall inspects bodies of at most 2,000 KB",
        require_range("policySettings.maxRequestBodySizeInKb", 8, 2000),
        "lower maxRequestBodySizeInKb", f"{_WAF_FILE}#L407",
    ),
    Refusal(
        "upload-limit", FIREWALL, BAD, "The firewall accepts files of at most 4,000 MB",
        require_range("policySettings.fileUploadLimitInMb", 1, 4000),
        "lower fileUploadLimitInMb", f"{_WAF_FILE}#L380",
    ),
)  # fmt: skip
