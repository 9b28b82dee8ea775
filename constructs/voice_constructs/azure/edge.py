"""Edge for HTTP and WebSockets: an application gateway with a web firewall."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import network

from voice_blueprint.azure.names import ResourceId, Role
from voice_blueprint.azure.ranges import calculate_agent_address, calculate_gateway_address
from voice_blueprint.capacity.bounds import EDGE_INSTANCES
from voice_blueprint.contract.network import AGENT_HTTP, GATEWAY_HTTP, GATEWAY_MEDIA, PUBLIC_TLS, Port
from voice_blueprint.contract.session_api import HEALTH_PATH, MAX_FILE_BYTES
from voice_blueprint.file.model.agents import AgentPods
from voice_blueprint.file.model.azure_callers import AzureEdge
from voice_constructs.azure.identity import Identity
from voice_constructs.azure.network import VoiceNetwork
from voice_constructs.azure.scope import Scope

LISTENER_PORTS: Mapping[str, Port] = {"api": GATEWAY_HTTP, "media": GATEWAY_MEDIA, "agent": AGENT_HTTP}
"""Ports for the gateway and the agents, by the first label of their host names."""
RTP_NAME = "rtp"
"""First label of the UDP load balancer's host name."""
MANAGED_RULE_SETS = {"Microsoft_DefaultRuleSet": "2.1", "Microsoft_BotManagerRuleSet": "1.1"}
"""Versions of the managed rule sets:
https://learn.microsoft.com/azure/web-application-firewall/ag/application-gateway-crs-rulegroups-rules"""
MAX_UPLOAD_MB = math.ceil(MAX_FILE_BYTES / 10**6)
"""Maximum file size that the web application firewall accepts."""
IDLE_MARGIN_S = 30
"""Margin over the gateway's own idle timeout."""


@dataclass(frozen=True)
class _SubresourceReferences:
    """References to parts of the application gateway, which refer to each other by id."""

    gateway_id: pulumi.Output[str]

    def create_reference(self, kind: str, name: str) -> network.SubResourceArgs:
        return network.SubResourceArgs(id=pulumi.Output.concat(self.gateway_id, f"/{kind}/{name}"))


class CallerEdge(pulumi.ComponentResource):
    """An application gateway with a web application firewall, and with TLS listeners for API, audio and agents.

    The certificate is stored in the vault. The backends are the load balancers of the gateway's and the agents' pods,
    whose addresses are in the nodes' range.

    Attributes:
        id: Resource id of the application gateway.
        addresses: Public addresses of the edge, by the first label of their DNS names.
    """

    def __init__(
        self, name: str, *, scope: Scope, network: VoiceNetwork, edge: AzureEdge, agents: AgentPods | None
    ) -> None:
        super().__init__("voice:azure:CallerEdge", name)
        self._scope, self._network, self._edge = scope, network, edge
        self._ports = {each: port for each, port in LISTENER_PORTS.items() if agents or port is not AGENT_HTTP}
        self._idle_s = max(edge.idle_timeout_s, agents.idle_timeout_s if agents else 0)
        self._child = pulumi.ResourceOptions(parent=self)
        identity = Identity("edge", scope=scope, opts=self._child)
        role_assignment = identity.grant_role(
            "edge-reads-certificate", Role.KEY_VAULT_SECRETS_USER, edge.certificate.vault_id
        )
        address = self._build_address()
        self.id = self._build_gateway(name, identity, address, self._build_firewall(name), [role_assignment]).id
        rtp = network.rtp_address
        self.addresses: dict[str, pulumi.Output[str | None]] = {
            **dict.fromkeys(self._ports, address.ip_address),
            **({RTP_NAME: rtp.ip_address} if rtp else {}),
        }
        self.register_outputs({})

    def _build_address(self) -> network.PublicIPAddress:
        return network.PublicIPAddress(
            "edge",
            resource_group_name=self._scope.group,
            public_ip_address_name=self._scope.build_name("edge"),
            location=self._scope.location,
            sku=network.PublicIPAddressSkuArgs(name=network.PublicIPAddressSkuName.STANDARD),
            public_ip_allocation_method=network.IPAllocationMethod.STATIC,
            zones=list(self._scope.deployment.azure.availability_zones),
            tags=self._scope.tags,
            opts=self._scope.retention.create_serving_options(parent=self),
        )

    def _build_firewall(self, name: str) -> network.WebApplicationFirewallPolicy:
        rate = network.WebApplicationFirewallCustomRuleArgs(
            name="requestsPerAddress",
            priority=10,
            rule_type=network.WebApplicationFirewallRuleType.RATE_LIMIT_RULE,
            rate_limit_duration=network.ApplicationGatewayFirewallRateLimitDuration.FIVE_MINS,
            rate_limit_threshold=self._edge.requests_per_address_5_min,
            group_by_user_session=[
                network.GroupByUserSessionArgs(
                    group_by_variables=[
                        network.GroupByVariableArgs(
                            variable_name=network.ApplicationGatewayFirewallUserSessionVariable.CLIENT_ADDR
                        )
                    ]
                )
            ],
            match_conditions=[
                network.MatchConditionArgs(
                    match_variables=[
                        network.MatchVariableArgs(variable_name=network.WebApplicationFirewallMatchVariable.REQUEST_URI)
                    ],
                    operator=network.WebApplicationFirewallOperator.CONTAINS,
                    match_values=["/"],
                )
            ],
            action=network.WebApplicationFirewallAction.BLOCK,
        )
        return network.WebApplicationFirewallPolicy(
            name,
            resource_group_name=self._scope.group,
            policy_name=self._scope.build_name("edge"),
            location=self._scope.location,
            policy_settings=network.PolicySettingsArgs(
                state=network.WebApplicationFirewallEnabledState.ENABLED,
                mode=network.WebApplicationFirewallMode.PREVENTION,
                # Azure's default limit of 100 MB is below the documented file size; with CRS 3.2 and later, the limit
                # can be 4 GB.
                # https://learn.microsoft.com/azure/web-application-firewall/ag/application-gateway-waf-request-size-limits
                file_upload_enforcement=True,
                file_upload_limit_in_mb=MAX_UPLOAD_MB,
                # The limit for other bodies is at most 2 MB, but the body of `POST /v1/listen` is the file itself. The
                # gateway limits the size of every body.
                request_body_enforcement=False,
            ),
            managed_rules=network.ManagedRulesDefinitionArgs(
                managed_rule_sets=[
                    network.ManagedRuleSetArgs(rule_set_type=kind, rule_set_version=version)
                    for kind, version in MANAGED_RULE_SETS.items()
                ]
            ),
            custom_rules=[rate],
            tags=self._scope.tags,
            opts=self._child,
        )

    def _build_gateway(
        self,
        name: str,
        identity: Identity,
        address: network.PublicIPAddress,
        firewall: network.WebApplicationFirewallPolicy,
        needs: list[pulumi.Resource],
    ) -> network.ApplicationGateway:
        scope, edge = self._scope, self._edge
        own_name = scope.build_name("edge")
        part = _SubresourceReferences(
            pulumi.Output.concat(scope.group_id, f"/providers/Microsoft.Network/applicationGateways/{own_name}")
        )
        vault = ResourceId.parse(edge.certificate.vault_id).name
        return network.ApplicationGateway(
            name,
            resource_group_name=scope.group,
            application_gateway_name=own_name,
            location=scope.location,
            zones=list(scope.deployment.azure.availability_zones),
            sku=network.ApplicationGatewaySkuArgs(
                name=network.ApplicationGatewaySkuName.WA_F_V2, tier=network.ApplicationGatewayTier.WA_F_V2
            ),
            autoscale_configuration=network.ApplicationGatewayAutoscaleConfigurationArgs(
                min_capacity=EDGE_INSTANCES[0], max_capacity=EDGE_INSTANCES[1]
            ),
            identity=network.ManagedServiceIdentityArgs(
                type=network.ResourceIdentityType.USER_ASSIGNED, user_assigned_identities=[identity.id]
            ),
            firewall_policy=network.SubResourceArgs(id=firewall.id),
            # Without response buffering, event streams are forwarded immediately.
            global_configuration=network.ApplicationGatewayGlobalConfigurationArgs(
                enable_request_buffering=True, enable_response_buffering=False
            ),
            ssl_policy=network.ApplicationGatewaySslPolicyArgs(
                policy_type=network.ApplicationGatewaySslPolicyType.PREDEFINED,
                policy_name=network.ApplicationGatewaySslPolicyName.APP_GW_SSL_POLICY20220101,
            ),
            ssl_certificates=[
                network.ApplicationGatewaySslCertificateArgs(
                    name="callers",
                    # The URL has no version, so that renewed certificates are used.
                    key_vault_secret_id=f"https://{vault}.vault.azure.net/secrets/{edge.certificate.name}",
                )
            ],
            gateway_ip_configurations=[
                network.ApplicationGatewayIPConfigurationArgs(
                    name="edge", subnet=network.SubResourceArgs(id=self._network.subnet_ids["edge"])
                )
            ],
            frontend_ip_configurations=[
                network.ApplicationGatewayFrontendIPConfigurationArgs(
                    name="public", public_ip_address=network.SubResourceArgs(id=address.id)
                )
            ],
            frontend_ports=[network.ApplicationGatewayFrontendPortArgs(name="tls", port=PUBLIC_TLS.number)],
            backend_address_pools=[
                network.ApplicationGatewayBackendAddressPoolArgs(
                    name=pool,
                    backend_addresses=[
                        network.ApplicationGatewayBackendAddressArgs(
                            ip_address=address_for(scope.deployment.azure.network.cidr)
                        )
                    ],
                )
                for pool, address_for in (("gateway", calculate_gateway_address), ("agent", calculate_agent_address))
                if pool == "gateway" or pool in self._ports
            ],
            probes=[self._build_probe(each, port) for each, port in self._ports.items()],
            backend_http_settings_collection=[
                self._build_backend_settings(part, each, port) for each, port in self._ports.items()
            ],
            http_listeners=[self._build_listener(part, each) for each in self._ports],
            request_routing_rules=[
                self._build_routing_rule(part, each, priority) for priority, each in enumerate(self._ports, start=100)
            ],
            tags=scope.tags,
            opts=pulumi.ResourceOptions.merge(
                scope.retention.create_serving_options(parent=self), pulumi.ResourceOptions(depends_on=needs)
            ),
        )

    def _build_host_name(self, name: str) -> str:
        return f"{name}.{self._edge.domain.name}"

    def _build_probe(self, name: str, port: Port) -> network.ApplicationGatewayProbeArgs:
        return network.ApplicationGatewayProbeArgs(
            name=name,
            protocol=network.ApplicationGatewayProtocol.HTTP,
            host=self._build_host_name(name),
            port=port.number,
            path=HEALTH_PATH,
            interval=10,
            timeout=5,
            unhealthy_threshold=2,
        )

    def _build_backend_settings(
        self, part: _SubresourceReferences, name: str, port: Port
    ) -> network.ApplicationGatewayBackendHttpSettingsArgs:
        return network.ApplicationGatewayBackendHttpSettingsArgs(
            name=name,
            port=port.number,
            protocol=network.ApplicationGatewayProtocol.HTTP,
            cookie_based_affinity=network.ApplicationGatewayCookieBasedAffinity.DISABLED,
            request_timeout=self._idle_s + IDLE_MARGIN_S,
            probe=part.create_reference("probes", name),
        )

    def _build_listener(self, part: _SubresourceReferences, name: str) -> network.ApplicationGatewayHttpListenerArgs:
        return network.ApplicationGatewayHttpListenerArgs(
            name=name,
            protocol=network.ApplicationGatewayProtocol.HTTPS,
            host_name=self._build_host_name(name),
            require_server_name_indication=True,
            frontend_ip_configuration=part.create_reference("frontendIPConfigurations", "public"),
            frontend_port=part.create_reference("frontendPorts", "tls"),
            ssl_certificate=part.create_reference("sslCertificates", "callers"),
        )

    def _build_routing_rule(
        self, part: _SubresourceReferences, name: str, priority: int
    ) -> network.ApplicationGatewayRequestRoutingRuleArgs:
        return network.ApplicationGatewayRequestRoutingRuleArgs(
            name=name,
            priority=priority,
            rule_type=network.ApplicationGatewayRequestRoutingRuleType.BASIC,
            http_listener=part.create_reference("httpListeners", name),
            backend_address_pool=part.create_reference(
                "backendAddressPools", "agent" if name == "agent" else "gateway"
            ),
            backend_http_settings=part.create_reference("backendHttpSettingsCollection", name),
        )
