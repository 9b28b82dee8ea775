"""The front door for audio."""

from aws_cdk import Duration
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from blueprint.contract.network import GATEWAY_MEDIA, PUBLIC_TLS, RTP, Tier
from voice_constructs.aws.acknowledge import acknowledge
from voice_constructs.aws.domain import EdgeDomain
from voice_constructs.aws.edge import EdgeContext
from voice_constructs.aws.encryption import of_log_delivery
from voice_constructs.aws.pseudo import ACCOUNT_ID

REPLACED_LOG_RETENTION_DAYS = 7
"""AWS writes a log file once; another version of it is somebody's doing, and is kept long enough to be found."""


class PublicLoadBalancer(Construct):
    """A network load balancer with the platform's two public listeners: TLS 443 and UDP 5004.

    About 0.0225 USD/hour and 0.006 USD per capacity unit and hour, and the price of traffic between zones with
    ``cross_zone`` (https://aws.amazon.com/elasticloadbalancing/pricing/, us-east-1).
    A UDP flow that is silent for 120 s is forgotten, and AWS offers no setting for it.

    Attributes:
        load_balancer: The load balancer.
        gateway_targets: Where TLS connections go.
        host: Host name that callers send audio to.
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
        super().__init__(scope, id_)
        self._context = context
        self.load_balancer = elbv2.NetworkLoadBalancer(
            self,
            "LoadBalancer",
            vpc=context.network.vpc,
            vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PUBLIC),
            internet_facing=True,
            security_groups=[context.network.security_groups[Tier.PUBLIC_LOAD_BALANCER]],
            cross_zone_enabled=context.settings.cross_zone,
            deletion_protection=context.deployment.aws.deletion_protection,
        )
        self.gateway_targets = context.gateway_targets(self, "GatewayTargets", GATEWAY_MEDIA)
        self.host = self._name(domain)
        self._listen(domain, rtp_targets)
        self._keep_access_logs()

    def _name(self, domain: EdgeDomain | None) -> str:
        balancer = self.load_balancer
        if domain is None:
            return balancer.load_balancer_dns_name
        domain.lead(
            domain.media_host,
            to=balancer.load_balancer_dns_name,
            zone_id=balancer.load_balancer_canonical_hosted_zone_id,
        )
        return domain.media_host

    def _listen(self, domain: EdgeDomain | None, rtp_targets: elbv2.INetworkTargetGroup) -> None:
        certificate = domain.certificate_arn if domain else self._context.settings.certificate_arn
        assert certificate is not None  # noqa: S101  the model asks for one of the two
        self.load_balancer.add_listener(
            "Tls",
            port=PUBLIC_TLS.number,
            protocol=elbv2.Protocol.TLS,
            certificates=[elbv2.ListenerCertificate.from_arn(certificate)],
            # TLS 1.2 and 1.3 with forward secrecy and authenticated ciphers only.
            ssl_policy=elbv2.SslPolicy.TLS13_RES,
            default_target_groups=[self.gateway_targets],
        )
        self.load_balancer.add_listener(
            "Rtp", port=RTP.number, protocol=elbv2.Protocol.UDP, default_target_groups=[rtp_targets]
        )

    def _keep_access_logs(self) -> None:
        """Keep those of TLS connections; AWS writes none for UDP."""
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
                    noncurrent_version_expiration=Duration.days(REPLACED_LOG_RETENTION_DAYS),
                )
            ],
            removal_policy=self._context.retention.logs,
        )
        acknowledge(bucket, "AwsSolutions-S1", "It holds access logs; logging access to it would log the logging")
        delivery, conditions = (
            iam.ServicePrincipal("delivery.logs.amazonaws.com"),
            of_log_delivery(deployment.aws.region),
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
        # AWS tries the bucket when logging is switched on.
        if bucket.policy is not None:
            self.load_balancer.node.add_dependency(bucket.policy)
