"""Rejections by Application Gateway and its web application firewall."""

from __future__ import annotations

from collections.abc import Iterator

from voice_sandbox.azure.refusals.networks import ADDRESS, GROUP, SUBNET, zone_row
from voice_sandbox.azure.refusals.request import Part, Request
from voice_sandbox.azure.refusals.roles import Role, is_granted, principals
from voice_sandbox.azure.refusals.row import BAD, Refusal, each, equal, is_set, only, required, unique, within
from voice_sandbox.azure.refusals.sources import AZURERM, AZURERM_FILES, LEARN

GATEWAY, FIREWALL = "network:ApplicationGateway", "network:WebApplicationFirewallPolicy"
_FILE = f"{AZURERM_FILES}/network/application_gateway_resource.go"
_WAF_FILE = f"{AZURERM_FILES}/network/web_application_firewall_policy_resource.go"
_INGRESS = "https://github.com/Azure/application-gateway-kubernetes-ingress"
_MAX_S, _MAX_FAILURES = 86_400, 20
_CONTROL_PORTS = "65200-65535"
_PRIMARY = ("OWASP", "Microsoft_DefaultRuleSet")
_REFERENCES = {
    "httpListeners": ("frontendIPConfiguration", "frontendPort", "sslCertificate"),
    "requestRoutingRules": ("httpListener", "backendAddressPool", "backendHttpSettings"),
    "backendHttpSettingsCollection": ("probe",),
}


def _listener(rule: Part) -> object:
    return rule.text("httpListener.id") or None


def _address(listener: Part) -> object:
    hosts = [listener.text("hostName"), *listener.texts("hostNames")]
    return (listener.text("frontendIPConfiguration.id"), listener.text("frontendPort.id"), *sorted(filter(None, hosts)))


def _missing_priority(rule: Part) -> Iterator[str]:
    if rule.number("priority") is None:
        yield f"{rule.at('priority')} of {rule.text('name')} is missing"


def _references(request: Request) -> Iterator[str]:
    """Yield the references to parts that the request does not contain."""
    for collection, names in _REFERENCES.items():
        for part in request.body.parts(collection):
            for name in names:
                *_, kind, part_name = ("", "", *part.text(f"{name}.id").split("/"))
                part_names = {other.text("name") for other in request.body.parts(kind)} if kind else set()
                if part_name and part_name not in part_names:
                    yield f"{part.at(name)} is {kind}/{part_name}, which the gateway does not have"


def _certificate(listener: Part) -> Iterator[str]:
    if listener.text("protocol") == "Https" and not listener.text("sslCertificate.id"):
        yield f"{listener.at('sslCertificate')} of {listener.text('name')} is missing"


def _vault_identity(request: Request) -> Iterator[str]:
    from_vault = [each for each in request.body.parts("sslCertificates") if each.get("keyVaultSecretId")]
    identities = principals(request, request.body.texts("identity.userAssignedIdentities"))
    if from_vault and not identities:
        yield "sslCertificates come from a key vault, and the gateway has no user-assigned identity"
    vaults = [grant.text("scope") for _, grant in request.ready("authorization:RoleAssignment")]
    for part in from_vault:
        vault = part.text("keyVaultSecretId").removeprefix("https://").partition(".")[0]
        scopes = [scope for scope in vaults if scope.lower().endswith(f"/vaults/{vault.lower()}")]
        if identities and not any(
            is_granted(request, identities, scope, Role.KEY_VAULT_SECRETS_USER) for scope in scopes
        ):
            yield (
                f"{part.at('keyVaultSecretId')} is in {vault}, where the gateway's identity has no permission to "
                "read secrets"
            )


def _own_subnet(request: Request) -> Iterator[tuple[str, Part]]:
    for part in request.body.parts("gatewayIPConfigurations"):
        identifier = part.text("subnet.id")
        if subnet := request.by_id(SUBNET, identifier):
            yield identifier, subnet


def _shared_subnets(request: Request) -> Iterator[str]:
    for identifier, subnet in _own_subnet(request):
        for kind, path in (("network:NetworkInterface", "ipConfigurations"), ("network:PrivateEndpoint", "subnet")):
            for resource, body in request.existing(kind):
                ids = [part.text("subnet.id") for part in body.parts(path)] or [body.text("subnet.id")]
                if identifier.lower() in map(str.lower, ids):
                    yield f"subnet {subnet.text('subnetName')} has {resource.label} too"


def _control_traffic(request: Request) -> Iterator[str]:
    for _, subnet in _own_subnet(request):
        group = request.by_id(GROUP, subnet.text("networkSecurityGroup.id"))
        if group and not any(_admits_control(rule) for rule in group.parts("securityRules")):
            yield (
                f"security group {group.text('networkSecurityGroupName')} does not allow GatewayManager on the ports "
                f"{_CONTROL_PORTS} of any destination"
            )


def _admits_control(rule: Part) -> bool:
    return (
        rule.text("direction") == "Inbound"
        and rule.text("access") == "Allow"
        and rule.text("sourceAddressPrefix") in {"GatewayManager", "Internet", "*"}
        and rule.text("destinationAddressPrefix") == "*"
        and rule.text("destinationPortRange") in {_CONTROL_PORTS, "*"}
    )


def _standard_address(request: Request) -> Iterator[str]:
    for part in request.body.parts("frontendIPConfigurations"):
        address = request.by_id(ADDRESS, part.text("publicIPAddress.id"))
        if address and address.text("sku.name") not in {"Standard", "StandardV2"}:
            yield f"{part.at('publicIPAddress')} is of SKU {address.text('sku.name') or 'Basic'}"


def _capacity(request: Request) -> Iterator[str]:
    body = request.body
    low, high = (body.number(f"autoscaleConfiguration.{name}Capacity") for name in ("min", "max"))
    if low is None and body.number("sku.capacity") is None:
        yield "sku.capacity and autoscaleConfiguration are both missing"
    if low is not None and high is not None and low > high:
        yield f"autoscaleConfiguration.minCapacity is {low:g}, maxCapacity {high:g}"


def _probe(probe: Part) -> Iterator[str]:
    interval, timeout, failures = (probe.number(name) for name in ("interval", "timeout", "unhealthyThreshold"))
    for name, value, high in (("interval", interval, _MAX_S), ("timeout", timeout, _MAX_S),
                              ("unhealthyThreshold", failures, _MAX_FAILURES)):  # fmt: skip
        if value is not None and not 1 <= value <= high:
            yield f"{probe.at(name)} is {value:g}; it must be at least 1 and at most {high}"
    if interval is not None and timeout is not None and timeout > interval:
        yield f"{probe.at('timeout')} is {timeout:g}; it must be at most the interval, {interval:g}"


def _probe_host(probe: Part) -> Iterator[str]:
    if bool(probe.get("host")) == bool(probe.get("pickHostNameFromBackendHttpSettings")):
        yield (
            f"{probe.path} has host {probe.text('host') or 'missing'}; it must have a host, or use that of its settings"
        )


def _timeout(settings: Part) -> Iterator[str]:
    value = settings.number("requestTimeout")
    if value is not None and not 1 <= value <= _MAX_S:
        yield f"{settings.at('requestTimeout')} is {value:g}; it must be at least 1 and at most {_MAX_S}"


def _rate_action(rule: Part) -> Iterator[str]:
    if rule.text("ruleType") == "RateLimitRule" and rule.text("action") == "Allow":
        yield f"{rule.at('action')} of {rule.text('name')} is Allow; it must be Block or Log"


def _rule_priority(rule: Part) -> object:
    return rule.number("priority")


def _rule_sets(request: Request) -> Iterator[str]:
    kinds = [each.text("ruleSetType") for each in request.body.parts("managedRules.managedRuleSets")]
    primary = [kind for kind in kinds if kind in _PRIMARY]
    if len(primary) != 1:
        yield f"managedRuleSets are {', '.join(kinds) or 'missing'}; they must include one of {' and '.join(_PRIMARY)}"


ROWS = (
    zone_row(GATEWAY),
    Refusal(
        "retired-gateway", GATEWAY, BAD, "Gateways with the SKUs Standard and WAF of version 1 can no longer be "
            "created",
        required("sku.tier", "Standard_v2", "WAF_v2", "Basic"),
        "set sku.tier to WAF_v2", f"{_FILE}#L5191-L5193",
    ),
    Refusal(
        "firewall-of-tier", GATEWAY, BAD, "A firewall policy requires the tier WAF_v2",
        required("sku.tier", "WAF_v2", when=is_set("firewallPolicy.id")),
        "set sku.tier to WAF_v2", f"{LEARN}/web-application-firewall/ag/ag-overview",
    ),
    Refusal(
        "request-buffer", GATEWAY, BAD, "Request buffering can't be disabled with the WAF SKU",
        only("globalConfiguration.enableRequestBuffering", True, when=equal("sku.tier", "WAF_v2")),
        "set enableRequestBuffering to true", f"{LEARN}/application-gateway/proxy-buffers",
    ),
    Refusal(
        "gateway-capacity", GATEWAY, BAD, "A gateway must have either a capacity or autoscaling bounds",
        _capacity, "set autoscaleConfiguration.minCapacity and maxCapacity", f"{_FILE}#L5148-L5150",
    ),
    Refusal(
        "gateway-instances", GATEWAY, BAD, "A gateway has at most 125 instances",
        within("autoscaleConfiguration.maxCapacity", 2, 125),
        "set maxCapacity to 125 or less", f"{_FILE}#L1027",
    ),
    Refusal(
        "routing-priority-missing", GATEWAY, "ApplicationGatewayRequestRoutingRulePriorityCannotBeEmpty",
        "Priority for the request routing rule cannot be empty",
        each("requestRoutingRules", _missing_priority), "give each rule a priority", f"{AZURERM}/issues/19874",
    ),
    Refusal(
        "routing-priority-twice", GATEWAY, BAD, "Priority must be unique across all the request routing rules",
        unique("requestRoutingRules", _rule_priority, "priority"),
        "assign a unique priority to each rule", f"{_INGRESS}/issues/1487",
    ),
    Refusal(
        "rules-of-one-listener", GATEWAY, "ApplicationGatewayRequestRoutingRulesUsingSameHttpListener",
        "Two request routing rules are using the same HTTP listener",
        unique("requestRoutingRules", _listener, "listener"),
        "use a separate listener for each rule", f"{AZURERM}/issues/8767",
    ),
    Refusal(
        "listeners-of-one-port", GATEWAY, "ApplicationGatewayHttpListenersUsingSameFrontendPort",
        "Two HTTP listeners are using the same frontend port and host name",
        unique("httpListeners", _address, "address"),
        "use a separate host name for each listener", f"{_INGRESS}/pull/692",
    ),
    Refusal(
        "gateway-references", GATEWAY, "InvalidResourceReference", "A referenced resource was not found",
        _references, "refer to an existing part of the gateway",
        "https://github.com/Azure/terraform-provider-azapi/issues/200",
    ),
    Refusal(
        "listener-certificate", GATEWAY, BAD, "A listener with TLS must have a certificate",
        each("httpListeners", _certificate), "name one of sslCertificates",
        f"{LEARN}/application-gateway/configuration-listeners#protocol",
    ),
    Refusal(
        "vault-certificate", GATEWAY, "ApplicationGatewayKeyVaultSecretException",
        "Problem occurred while accessing and validating KeyVault Secrets",
        _vault_identity, "grant Key Vault Secrets User to the gateway's identity, and depend on the role assignment",
        "https://github.com/MicrosoftDocs/azure-docs/issues/33157",
    ),
    Refusal(
        "gateway-subnet", GATEWAY, BAD, "A subnet with an application gateway can only contain application gateways",
        _shared_subnets, "use a separate subnet for the gateway",
        f"{LEARN}/application-gateway/configuration-infrastructure#virtual-network-and-dedicated-subnet",
    ),
    Refusal(
        "gateway-control-traffic", GATEWAY, "ApplicationGatewaySubnetInboundTrafficBlockedByNetworkSecurityGroup",
        "The network security group blocks incoming traffic on ports 65200 - 65535",
        _control_traffic, "allow GatewayManager in at 65200-65535",
        "https://github.com/Azure/AKS-Construction/issues/333",
    ),
    Refusal(
        "gateway-address", GATEWAY, BAD, "A gateway of version 2 requires a public IP address of SKU Standard",
        _standard_address, "set sku.name of the address to Standard",
        f"{LEARN}/application-gateway/configuration-frontend-ip",
    ),
    Refusal(
        "probe-times", GATEWAY, BAD, "The time-out of a probe must not be greater than its interval",
        each("probes", _probe), "set timeout below interval", f"{_FILE}#L5256-L5260",
    ),
    Refusal(
        "probe-host", GATEWAY, BAD, "A probe must have a host, or use that of its settings",
        each("probes", _probe_host), "set host", f"{_FILE}#L5235-L5237",
    ),
    Refusal(
        "request-timeout", GATEWAY, BAD, "The request timeout must be between 1 and 86,400 s",
        each("backendHttpSettingsCollection", _timeout), "lower idle_timeout_s of edge or agents", f"{_FILE}#L283",
    ),
    Refusal(
        "rate-limit-action", FIREWALL, "ApplicationGatewayFirewallCustomRuleInvalidAction",
        "The action is not valid for the rule type RateLimitRule",
        each("customRules", _rate_action), "set action to Block", f"{AZURERM}/pull/28987",
    ),
    Refusal(
        "custom-rule-priorities", FIREWALL, BAD, "Priorities of custom rules must be unique",
        unique("customRules", _rule_priority, "priority"),
        "assign a unique priority to each rule", f"{LEARN}/web-application-firewall/ag/custom-waf-rules-overview",
    ),
    Refusal(
        "rule-sets", FIREWALL, BAD, "A policy must have exactly one primary rule set",
        _rule_sets, "name Microsoft_DefaultRuleSet alone",
        f"{LEARN}/web-application-firewall/ag/application-gateway-crs-rulegroups-rules",
    ),
    Refusal(
        "body-limit", FIREWALL, BAD, "The firewall inspects bodies of at most 2,000 KB",
        within("policySettings.maxRequestBodySizeInKb", 8, 2000),
        "lower maxRequestBodySizeInKb", f"{_WAF_FILE}#L407",
    ),
    Refusal(
        "upload-limit", FIREWALL, BAD, "The firewall accepts files of at most 4,000 MB",
        within("policySettings.fileUploadLimitInMb", 1, 4000),
        "lower fileUploadLimitInMb", f"{_WAF_FILE}#L380",
    ),
)  # fmt: skip
