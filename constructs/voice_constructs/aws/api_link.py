"""The private connection from API Gateway to the gateway service."""

from aws_cdk import Duration
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from constructs import Construct

from voice_blueprint.aws.edge import STREAM_TIMEOUT_S
from voice_blueprint.contract.network import GATEWAY_HTTP, Tier
from voice_blueprint.contract.session_api import CALLER_HEADER
from voice_constructs.aws.acknowledge import acknowledge
from voice_constructs.aws.edge import EdgeContext


class ApiLink(Construct):
    """A VPC link with its internal load balancer.

    Attributes:
        load_balancer: The load balancer, which costs about 0.0225 USD per hour.
        gateway_targets: Target group of the load balancer.
    """

    def __init__(self, scope: Construct, id_: str, *, context: EdgeContext) -> None:
        super().__init__(scope, id_)
        self.load_balancer = elbv2.NetworkLoadBalancer(
            self,
            "LoadBalancer",
            vpc=context.network.vpc,
            vpc_subnets=context.network.select_private_subnets(),
            internet_facing=False,
            security_groups=[context.network.security_groups[Tier.API_LOAD_BALANCER]],
            # API Gateway connects over PrivateLink with its own addresses; no other traffic is allowed.
            enforce_security_group_inbound_rules_on_private_link_traffic=False,
            # The link can use any zone. If there are few tasks, some zones have none.
            cross_zone_enabled=True,
            deletion_protection=context.deployment.aws.deletion_protection,
        )
        acknowledge(
            self.load_balancer,
            "AwsSolutions-ELB2",
            "AWS writes access logs of TLS listeners only; API Gateway logs every request of this path",
        )
        self.gateway_targets = context.create_task_target_group(self, "GatewayTargets", GATEWAY_HTTP)
        self.load_balancer.add_listener(
            "Http",
            port=GATEWAY_HTTP.number,
            protocol=elbv2.Protocol.TCP,
            default_target_groups=[self.gateway_targets],
        )
        self._link = apigateway.VpcLink(self, "Link", targets=[self.load_balancer])

    def build_integration(
        self, method: str, path: str, *, caller: str | None, stream: bool = False
    ) -> apigateway.HttpIntegration:
        """Return the integration that forwards the requests for a method, together with their caller.

        Args:
            path: Path on the gateway; ``{id}`` is substituted from the request.
            caller: API Gateway variable with the caller; ``None`` if the gateway authenticates callers itself.
            stream: Whether the response is streamed, for up to ``STREAM_TIMEOUT_S``.
        """
        parameters = {"integration.request.path.id": "method.request.path.id"} if "{id}" in path else {}
        if caller:
            parameters[f"integration.request.header.{CALLER_HEADER}"] = caller
        return apigateway.HttpIntegration(
            f"http://{self.load_balancer.load_balancer_dns_name}:{GATEWAY_HTTP.number}{path}",
            http_method=method,
            proxy=True,
            options=apigateway.IntegrationOptions(
                connection_type=apigateway.ConnectionType.VPC_LINK,
                vpc_link=self._link,
                request_parameters=parameters,
                response_transfer_mode=apigateway.ResponseTransferMode.STREAM if stream else None,
                timeout=Duration.seconds(STREAM_TIMEOUT_S) if stream else None,
            ),
        )
