"""The public load balancers for audio and for conversations."""

from aws_cdk import Duration
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from voice_blueprint.contract.network import GATEWAY_MEDIA, PUBLIC_TLS, RTP, Port, Tier
from voice_constructs.aws.acknowledge import acknowledge
from voice_constructs.aws.domain import EdgeDomain, HostDomain
from voice_constructs.aws.edge import EdgeContext
from voice_constructs.aws.encryption import create_log_delivery_condition
from voice_constructs.aws.pseudo import ACCOUNT_ID

NONCURRENT_LOG_RETENTION_DAYS = 7
"""AWS writes each log file once. Another version of a file is the result of tampering, and is kept long enough to be
detected."""


class TlsLoadBalancer(Construct):
    """A network load balancer with a public TLS listener on port 443 and access logs.

    The load balancer costs about 0.0225 USD per hour, and 0.006 USD per hour for each capacity unit. With
    ``cross_zone``, traffic between zones is also charged (https://aws.amazon.com/elasticloadbalancing/pricing/,
    us-east-1).

    Args:
        tier: Tier of the load balancer's security group.
        port: Port of the tasks.
        target_id: Construct id of the tasks' target group.
        domain: Domain with the certificate; ``None`` if the file contains the certificate's ARN.
        host: Host name in the domain; ``None`` if callers use the load balancer's own name.

    Attributes:
        load_balancer: The load balancer.
        targets: Target group of TLS connections.
        host: Host name for callers.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        context: EdgeContext,
        tier: Tier,
        port: Port,
        target_id: str,
        domain: HostDomain | None,
        host: str | None,
    ) -> None:
        super().__init__(scope, id_)
        self._context = context
        self.targets = context.create_task_target_group(self, target_id, port, preserve_client_ip=True)
        self.load_balancer = elbv2.NetworkLoadBalancer(
            self,
            "LoadBalancer",
            vpc=context.network.vpc,
            vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PUBLIC),
            internet_facing=True,
            security_groups=[context.network.security_groups[tier]],
            cross_zone_enabled=context.settings.cross_zone,
            deletion_protection=context.deployment.aws.deletion_protection,
        )
        self.host = self._publish_host_name(domain, host)
        self._add_tls_listener(domain)
        self._store_access_logs()

    def _publish_host_name(self, domain: HostDomain | None, host: str | None) -> str:
        balancer = self.load_balancer
        if domain is None or host is None:
            return balancer.load_balancer_dns_name
        domain.add_alias_record(
            host,
            dns_name=balancer.load_balancer_dns_name,
            zone_id=balancer.load_balancer_canonical_hosted_zone_id,
        )
        return host

    def _add_tls_listener(self, domain: HostDomain | None) -> None:
        certificate = domain.certificate_arn if domain else self._context.settings.certificate_arn
        assert certificate is not None  # noqa: S101  the model asks for one of the two
        self.load_balancer.add_listener(
            "Tls",
            port=PUBLIC_TLS.number,
            protocol=elbv2.Protocol.TLS,
            certificates=[elbv2.ListenerCertificate.from_arn(certificate)],
            # This policy only allows TLS 1.2 and 1.3 with forward secrecy and authenticated ciphers.
            ssl_policy=elbv2.SslPolicy.TLS13_RES,
            default_target_groups=[self.targets],
        )

    def _store_access_logs(self) -> None:
        """Store the access logs of TLS connections. AWS writes no access logs for UDP."""
        deployment = self._context.deployment
        bucket = s3.Bucket(
            self,
            "AccessLogs",
            encryption=s3.BucketEncryption.KMS,
            encryption_key=self._context.key,
            bucket_key_enabled=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            versioned=True,
            lifecycle_rules=[
                s3.LifecycleRule(
                    expiration=Duration.days(deployment.aws.observability.log_retention_days),
                    noncurrent_version_expiration=Duration.days(NONCURRENT_LOG_RETENTION_DAYS),
                )
            ],
            removal_policy=self._context.retention.logs,
        )
        acknowledge(
            bucket, "AwsSolutions-S1", "It contains access logs; logging access to it would create logs of logs"
        )
        delivery, conditions = (
            iam.ServicePrincipal("delivery.logs.amazonaws.com"),
            create_log_delivery_condition(deployment.aws.region),
        )
        for actions, resource in (
            (["s3:GetBucketAcl", "s3:ListBucket"], bucket.bucket_arn),
            (["s3:PutObject"], bucket.arn_for_objects(f"AWSLogs/{ACCOUNT_ID}/*")),
        ):
            bucket.add_to_resource_policy(
                iam.PolicyStatement(principals=[delivery], actions=actions, resources=[resource], conditions=conditions)
            )
        self.load_balancer.set_attribute("access_logs.s3.enabled", "true")
        self.load_balancer.set_attribute("access_logs.s3.bucket", bucket.bucket_name)
        # AWS writes to the bucket when logging is enabled, so the bucket's policy must already exist.
        if bucket.policy is not None:
            self.load_balancer.node.add_dependency(bucket.policy)


class PublicLoadBalancer(TlsLoadBalancer):
    """The load balancer for audio: TLS 443 forwards to gateway tasks, UDP 5004 to VAD hosts.

    A UDP flow expires after 120 s without packets; AWS has no setting for this timeout.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        context: EdgeContext,
        domain: EdgeDomain | None,
        rtp_targets: elbv2.INetworkTargetGroup,
    ) -> None:
        super().__init__(
            scope,
            id_,
            context=context,
            tier=Tier.PUBLIC_LOAD_BALANCER,
            port=GATEWAY_MEDIA,
            target_id="GatewayTargets",
            domain=domain,
            host=domain.media_host if domain else None,
        )
        self.load_balancer.add_listener(
            "Rtp", port=RTP.number, protocol=elbv2.Protocol.UDP, default_target_groups=[rtp_targets]
        )
