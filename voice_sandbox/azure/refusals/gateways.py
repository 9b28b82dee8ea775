"""Rejections by Application Gateway and its web application firewall."""

from __future__ import annotations

from collections.abc import Iterator

from voice_sandbox.azure.refusals.networks import ADDRESS, GROUP, SUBNET, build_zone_rule
from voice_sandbox.azure.refusals.request import Request, RequestPart
from voice_sandbox.azure.refusals.roles import Role, find_principal_ids, is_role_granted
from voice_sandbox.azure.refusals.row import (
    BAD_REQUEST,
    RejectionRule,
    allow_only,
    evaluate_each,
    has_value,
    is_set,
    require,
    require_range,
    require_unique,
)
from voice_sandbox.azure.refusals.sources import AZURERM_FILES, AZURERM_URL, LEARN_URL

GATEWAY, FIREWALL = "network:ApplicationGateway", "network:WebApplicationFirewallPolicy"
_GATEWAY_SOURCE_URL = f"{AZURERM_FILES}/network/application_gateway_resource.go"
_WAF_SOURCE_URL = f"{AZURERM_FILES}/network/web_application_firewall_policy_resource.go"
_INGRESS_REPOSITORY_URL = "https://github.com/Azure/application-gateway-kubernetes-ingress"
_MAX_DURATION_S, _MAX_FAILURES = 86_400, 20
_CONTROL_PORTS = "65200-65535"
_PRIMARY_RULE_SETS = ("OWASP", "Microsoft_DefaultRuleSet")
_REFERENCES_BY_COLLECTION = {
    "httpListeners": ("frontendIPConfiguration", "frontendPort", "sslCertificate"),
    "requestRoutingRules": ("httpListener", "backendAddressPool", "backendHttpSettings"),
    "backendHttpSettingsCollection": ("probe",),
}


def _get_listener_id(rule: RequestPart) -> object:
    return rule.get_text("httpListener.id") or None


def _get_listener_address(listener: RequestPart) -> object:
    hosts = [listener.get_text("hostName"), *listener.get_texts("hostNames")]
    return (
        listener.get_text("frontendIPConfiguration.id"),
        listener.get_text("frontendPort.id"),
        *sorted(filter(None, hosts)),
    )


def _find_priority_problems(rule: RequestPart) -> Iterator[str]:
    if rule.get_number("priority") is None:
        yield f"{rule.to_full_path('priority')} of {rule.get_text('name')} is missing"


def _find_reference_problems(request: Request) -> Iterator[str]:
    """Yield the references to parts that are missing from the request."""
    for collection, names in _REFERENCES_BY_COLLECTION.items():
        for part in request.body.get_parts(collection):
            for name in names:
                *_, kind, part_name = ("", "", *part.get_text(f"{name}.id").split("/"))
                part_names = {other.get_text("name") for other in request.body.get_parts(kind)} if kind else set()
                if part_name and part_name not in part_names:
                    yield f"{part.to_full_path(name)} is {kind}/{part_name}, which the gateway does not have"


def _find_certificate_problems(listener: RequestPart) -> Iterator[str]:
    if listener.get_text("protocol") == "Https" and not listener.get_text("sslCertificate.id"):
        yield f"{listener.to_full_path('sslCertificate')} of {listener.get_text('name')} is missing"


def _find_vault_access_problems(request: Request) -> Iterator[str]:
    from_vault = [each for each in request.body.get_parts("sslCertificates") if each.get("keyVaultSecretId")]
    identities = find_principal_ids(request, request.body.get_texts("identity.userAssignedIdentities"))
    if from_vault and not identities:
        yield "sslCertificates come from a key vault, and the gateway has no user-assigned identity"
    vaults = [grant.get_text("scope") for _, grant in request.iter_guaranteed_resources("authorization:RoleAssignment")]
    for part in from_vault:
        vault = part.get_text("keyVaultSecretId").removeprefix("https://").partition(".")[0]
        scopes = [scope for scope in vaults if scope.lower().endswith(f"/vaults/{vault.lower()}")]
        if identities and not any(
            is_role_granted(request, identities, scope, Role.KEY_VAULT_SECRETS_USER) for scope in scopes
        ):
            yield (
                f"{part.to_full_path('keyVaultSecretId')} is in {vault}, where the gateway's identity has no "
                "permission to read secrets"
            )


def _iter_gateway_subnets(request: Request) -> Iterator[tuple[str, RequestPart]]:
    for part in request.body.get_parts("gatewayIPConfigurations"):
        identifier = part.get_text("subnet.id")
        if subnet := request.find_by_id(SUBNET, identifier):
            yield identifier, subnet


def _find_shared_subnet_problems(request: Request) -> Iterator[str]:
    for identifier, subnet in _iter_gateway_subnets(request):
        for kind, path in (("network:NetworkInterface", "ipConfigurations"), ("network:PrivateEndpoint", "subnet")):
            for resource, body in request.iter_existing_resources(kind):
                ids = [part.get_text("subnet.id") for part in body.get_parts(path)] or [body.get_text("subnet.id")]
                if identifier.lower() in map(str.lower, ids):
                    yield f"subnet {subnet.get_text('subnetName')} has {resource.label} too"


def _find_control_traffic_problems(request: Request) -> Iterator[str]:
    for _, subnet in _iter_gateway_subnets(request):
        group = request.find_by_id(GROUP, subnet.get_text("networkSecurityGroup.id"))
        if group and not any(_allows_control_traffic(rule) for rule in group.get_parts("securityRules")):
            yield (
                f"security group {group.get_text('networkSecurityGroupName')} does not allow GatewayManager on the "
                f"ports {_CONTROL_PORTS} of any destination"
            )


def _allows_control_traffic(rule: RequestPart) -> bool:
    return (
        rule.get_text("direction") == "Inbound"
        and rule.get_text("access") == "Allow"
        and rule.get_text("sourceAddressPrefix") in {"GatewayManager", "Internet", "*"}
        and rule.get_text("destinationAddressPrefix") == "*"
        and rule.get_text("destinationPortRange") in {_CONTROL_PORTS, "*"}
    )


def _find_address_sku_problems(request: Request) -> Iterator[str]:
    for part in request.body.get_parts("frontendIPConfigurations"):
        address = request.find_by_id(ADDRESS, part.get_text("publicIPAddress.id"))
        if address and address.get_text("sku.name") not in {"Standard", "StandardV2"}:
            yield f"{part.to_full_path('publicIPAddress')} is of SKU {address.get_text('sku.name') or 'Basic'}"


def _find_capacity_problems(request: Request) -> Iterator[str]:
    body = request.body
    low, high = (body.get_number(f"autoscaleConfiguration.{name}Capacity") for name in ("min", "max"))
    if low is None and body.get_number("sku.capacity") is None:
        yield "sku.capacity and autoscaleConfiguration are both missing"
    if low is not None and high is not None and low > high:
        yield f"autoscaleConfiguration.minCapacity is {low:g}, maxCapacity {high:g}"


def _find_probe_problems(probe: RequestPart) -> Iterator[str]:
    interval, timeout, failures = (probe.get_number(name) for name in ("interval", "timeout", "unhealthyThreshold"))
    for name, value, high in (("interval", interval, _MAX_DURATION_S), ("timeout", timeout, _MAX_DURATION_S),
                              ("unhealthyThreshold", failures, _MAX_FAILURES)):  # fmt: skip
        if value is not None and not 1 <= value <= high:
            yield f"{probe.to_full_path(name)} is {value:g}; it must be at least 1 and at most {high}"
    if interval is not None and timeout is not None and timeout > interval:
        yield f"{probe.to_full_path('timeout')} is {timeout:g}; it must be at most the interval, {interval:g}"


def _find_probe_host_problems(probe: RequestPart) -> Iterator[str]:
    if bool(probe.get("host")) == bool(probe.get("pickHostNameFromBackendHttpSettings")):
        yield (
            f"{probe.path} has host {probe.get_text('host') or 'missing'}; it must have a host, or use that of its "
            f"settings"
        )


def _find_timeout_problems(settings: RequestPart) -> Iterator[str]:
    value = settings.get_number("requestTimeout")
    if value is not None and not 1 <= value <= _MAX_DURATION_S:
        path = settings.to_full_path("requestTimeout")
        yield f"{path} is {value:g}; it must be at least 1 and at most {_MAX_DURATION_S}"


def _find_rate_limit_action_problems(rule: RequestPart) -> Iterator[str]:
    if rule.get_text("ruleType") == "RateLimitRule" and rule.get_text("action") == "Allow":
        yield f"{rule.to_full_path('action')} of {rule.get_text('name')} is Allow; it must be Block or Log"


def _get_rule_priority(rule: RequestPart) -> object:
    return rule.get_number("priority")


def _find_rule_set_problems(request: Request) -> Iterator[str]:
    kinds = [each.get_text("ruleSetType") for each in request.body.get_parts("managedRules.managedRuleSets")]
    primary = [kind for kind in kinds if kind in _PRIMARY_RULE_SETS]
    if len(primary) != 1:
        yield (
            f"managedRuleSets are {', '.join(kinds) or 'missing'}; they must include one of "
            f"{' and '.join(_PRIMARY_RULE_SETS)}"
        )


REJECTION_RULES = (
    build_zone_rule(GATEWAY),
    RejectionRule(
        "retired-gateway", GATEWAY, BAD_REQUEST,
        "Gateways with the SKUs Standard and WAF of version 1 can no longer be created",
        require("sku.tier", "Standard_v2", "WAF_v2", "Basic"),
        "set sku.tier to WAF_v2", f"{_GATEWAY_SOURCE_URL}#L5191-L5193",
    ),
    RejectionRule(
        "firewall-of-tier", GATEWAY, BAD_REQUEST, "A firewall policy requires the tier WAF_v2",
        require("sku.tier", "WAF_v2", when=is_set("firewallPolicy.id")),
        "set sku.tier to WAF_v2", f"{LEARN_URL}/web-application-firewall/ag/ag-overview",
    ),
    RejectionRule(
        "request-buffer", GATEWAY, BAD_REQUEST, "Request buffering can't be disabled with the WAF SKU",
        allow_only("globalConfiguration.enableRequestBuffering", True, when=has_value("sku.tier", "WAF_v2")),
        "set enableRequestBuffering to true", f"{LEARN_URL}/application-gateway/proxy-buffers",
    ),
    RejectionRule(
        "gateway-capacity", GATEWAY, BAD_REQUEST, "A gateway must have either a capacity or autoscaling bounds",
        _find_capacity_problems, "set autoscaleConfiguration.minCapacity and maxCapacity",
        f"{_GATEWAY_SOURCE_URL}#L5148-L5150",
    ),
    RejectionRule(
        "gateway-instances", GATEWAY, BAD_REQUEST, "A gateway has at most 125 instances",
        require_range("autoscaleConfiguration.maxCapacity", 2, 125),
        "set maxCapacity to 125 or less", f"{_GATEWAY_SOURCE_URL}#L1027",
    ),
    RejectionRule(
        "routing-priority-missing", GATEWAY, "ApplicationGatewayRequestRoutingRulePriorityCannotBeEmpty",
        "Priority for the request routing rule cannot be empty",
        evaluate_each("requestRoutingRules", _find_priority_problems), "give each rule a priority",
        f"{AZURERM_URL}/issues/19874",
    ),
    RejectionRule(
        "routing-priority-twice", GATEWAY, BAD_REQUEST, "Priority must be unique across all the request routing rules",
        require_unique("requestRoutingRules", _get_rule_priority, "priority"),
        "assign a unique priority to each rule", f"{_INGRESS_REPOSITORY_URL}/issues/1487",
    ),
    RejectionRule(
        "rules-of-one-listener", GATEWAY, "ApplicationGatewayRequestRoutingRulesUsingSameHttpListener",
        "Two request routing rules are using the same HTTP listener",
        require_unique("requestRoutingRules", _get_listener_id, "listener"),
        "use a separate listener for each rule", f"{AZURERM_URL}/issues/8767",
    ),
    RejectionRule(
        "listeners-of-one-port", GATEWAY, "ApplicationGatewayHttpListenersUsingSameFrontendPort",
        "Two HTTP listeners are using the same frontend port and host name",
        require_unique("httpListeners", _get_listener_address, "address"),
        "use a separate host name for each listener", f"{_INGRESS_REPOSITORY_URL}/pull/692",
    ),
    RejectionRule(
        "gateway-references", GATEWAY, "InvalidResourceReference", "A referenced resource was not found",
        _find_reference_problems, "refer to an existing part of the gateway",
        "https://github.com/Azure/terraform-provider-azapi/issues/200",
    ),
    RejectionRule(
        "listener-certificate", GATEWAY, BAD_REQUEST, "A listener with TLS must have a certificate",
        evaluate_each("httpListeners", _find_certificate_problems), "name one of sslCertificates",
        f"{LEARN_URL}/application-gateway/configuration-listeners#protocol",
    ),
    RejectionRule(
        "vault-certificate", GATEWAY, "ApplicationGatewayKeyVaultSecretException",
        "Problem occurred while accessing and validating KeyVault Secrets",
        _find_vault_access_problems,
        "grant Key Vault Secrets User to the gateway's identity, and depend on the role assignment",
        "https://github.com/MicrosoftDocs/azure-docs/issues/33157",
    ),
    RejectionRule(
        "gateway-subnet", GATEWAY, BAD_REQUEST,
        "A subnet with an application gateway can only contain application gateways",
        _find_shared_subnet_problems, "use a separate subnet for the gateway",
        f"{LEARN_URL}/application-gateway/configuration-infrastructure#virtual-network-and-dedicated-subnet",
    ),
    RejectionRule(
        "gateway-control-traffic", GATEWAY, "ApplicationGatewaySubnetInboundTrafficBlockedByNetworkSecurityGroup",
        "The network security group blocks incoming traffic on ports 65200 - 65535",
        _find_control_traffic_problems, "allow GatewayManager in at 65200-65535",
        "https://github.com/Azure/AKS-Construction/issues/333",
    ),
    RejectionRule(
        "gateway-address", GATEWAY, BAD_REQUEST, "A gateway of version 2 requires a public IP address of SKU Standard",
        _find_address_sku_problems, "set sku.name of the address to Standard",
        f"{LEARN_URL}/application-gateway/configuration-frontend-ip",
    ),
    RejectionRule(
        "probe-times", GATEWAY, BAD_REQUEST, "The time-out of a probe must not be greater than its interval",
        evaluate_each("probes", _find_probe_problems), "set timeout below interval",
        f"{_GATEWAY_SOURCE_URL}#L5256-L5260",
    ),
    RejectionRule(
        "probe-host", GATEWAY, BAD_REQUEST, "A probe must have a host, or use that of its settings",
        evaluate_each("probes", _find_probe_host_problems), "set host", f"{_GATEWAY_SOURCE_URL}#L5235-L5237",
    ),
    RejectionRule(
        "request-timeout", GATEWAY, BAD_REQUEST, "The request timeout must be between 1 and 86,400 s",
        evaluate_each("backendHttpSettingsCollection", _find_timeout_problems),
        "lower idle_timeout_s of edge or agents", f"{_GATEWAY_SOURCE_URL}#L283",
    ),
    RejectionRule(
        "rate-limit-action", FIREWALL, "ApplicationGatewayFirewallCustomRuleInvalidAction",
        "The action is not valid for the rule type RateLimitRule",
        evaluate_each("customRules", _find_rate_limit_action_problems), "set action to Block",
        f"{AZURERM_URL}/pull/28987",
    ),
    RejectionRule(
        "custom-rule-priorities", FIREWALL, BAD_REQUEST, "Priorities of custom rules must be unique",
        require_unique("customRules", _get_rule_priority, "priority"),
        "assign a unique priority to each rule", f"{LEARN_URL}/web-application-firewall/ag/custom-waf-rules-overview",
    ),
    RejectionRule(
        "rule-sets", FIREWALL, BAD_REQUEST, "A policy must have exactly one primary rule set",
        _find_rule_set_problems, "name Microsoft_DefaultRuleSet alone",
        f"{LEARN_URL}/web-application-firewall/ag/application-gateway-crs-rulegroups-rules",
    ),
    RejectionRule(
        "body-limit", FIREWALL, BAD_REQUEST, "The firewall inspects bodies of at most 2,000 KB",
        require_range("policySettings.maxRequestBodySizeInKb", 8, 2000),
        "lower maxRequestBodySizeInKb", f"{_WAF_SOURCE_URL}#L407",
    ),
    RejectionRule(
        "upload-limit", FIREWALL, BAD_REQUEST, "The firewall accepts files of at most 4,000 MB",
        require_range("policySettings.fileUploadLimitInMb", 1, 4000),
        "lower fileUploadLimitInMb", f"{_WAF_SOURCE_URL}#L380",
    ),
)  # fmt: skip
