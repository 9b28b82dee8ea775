"""Samples of load balancers and the gateway service."""

from __future__ import annotations

from tests.sandbox.aws.samples.parts import POLICY, TAGS, ZONE, Resources, att, ref, resource, vpc


def balancer() -> Resources:
    """Return a network load balancer for UDP and TLS, with names and a certificate."""
    forward = {"Type": "forward", "TargetGroupArn": ref("Encrypted")}
    return vpc() | {
        "Balancer": resource(
            "ElasticLoadBalancingV2::LoadBalancer",
            Type="network",
            Scheme="internet-facing",
            Subnets=[ref("SubnetA"), ref("SubnetB")],
            SecurityGroups=[ref("Group")],
            LoadBalancerAttributes=[{"Key": "load_balancing.cross_zone.enabled", "Value": "true"}],
            Tags=TAGS,
        ),
        "Audio": resource(
            "ElasticLoadBalancingV2::TargetGroup",
            Protocol="UDP",
            Port=5004,
            VpcId=ref("Vpc"),
            TargetType="instance",
            HealthCheckProtocol="HTTP",
            HealthCheckPort="8080",
            HealthCheckPath="/healthz",
            TargetGroupAttributes=[{"Key": "deregistration_delay.timeout_seconds", "Value": "30"}],
        ),
        "Encrypted": resource(
            "ElasticLoadBalancingV2::TargetGroup", Protocol="TCP", Port=8080, VpcId=ref("Vpc"), TargetType="ip"
        ),
        "Udp": resource(
            "ElasticLoadBalancingV2::Listener",
            LoadBalancerArn=ref("Balancer"),
            Protocol="UDP",
            Port=5004,
            DefaultActions=[{"Type": "forward", "TargetGroupArn": ref("Audio")}],
        ),
        "Tls": resource(
            "ElasticLoadBalancingV2::Listener",
            LoadBalancerArn=ref("Balancer"),
            Protocol="TLS",
            Port=443,
            SslPolicy="ELBSecurityPolicy-TLS13-1-2-2021-06",
            Certificates=[{"CertificateArn": ref("Certificate")}],
            DefaultActions=[forward],
        ),
        "Inner": resource("ElasticLoadBalancingV2::LoadBalancer", Subnets=[ref("SubnetA"), ref("SubnetB")]),
        "Record": resource(
            "Route53::RecordSet",
            HostedZoneId=ZONE,
            Name="audio.example.com.",
            Type="CNAME",
            TTL="60",
            ResourceRecords=[att("Balancer", "DNSName")],
        ),
        "Check": resource(
            "Route53::HealthCheck",
            HealthCheckConfig={
                "Type": "HTTPS",
                "FullyQualifiedDomainName": "media.example.com",
                "ResourcePath": "/healthz",
                "RequestInterval": 10,
                "FailureThreshold": 3,
            },
        ),
        "Near": resource(
            "Route53::RecordSet",
            HostedZoneId=ZONE,
            Name="any.example.com.",
            Type="A",
            AliasTarget={"DNSName": att("Balancer", "DNSName"), "HostedZoneId": "Z0LB"},
            SetIdentifier="us-east-1",
            Region="us-east-1",
            HealthCheckId=ref("Check"),
        ),
        "Certificate": resource(
            "CertificateManager::Certificate",
            DomainName="voice.example.com",
            ValidationMethod="DNS",
            DomainValidationOptions=[{"DomainName": "voice.example.com", "HostedZoneId": ZONE}],
        ),
    }


def gateway() -> Resources:
    """Return a Fargate service with scaling."""
    return vpc() | {
        "Cluster": resource(
            "ECS::Cluster", ClusterSettings=[{"Name": "containerInsights", "Value": "enhanced"}], Tags=TAGS
        ),
        "Role": resource("IAM::Role", AssumeRolePolicyDocument=POLICY),
        "Task": resource(
            "ECS::TaskDefinition",
            Cpu="1024",
            Memory="2048",
            NetworkMode="awsvpc",
            RequiresCompatibilities=["FARGATE"],
            RuntimePlatform={"CpuArchitecture": "ARM64", "OperatingSystemFamily": "LINUX"},
            ExecutionRoleArn=att("Role", "Arn"),
            ContainerDefinitions=[
                {
                    "Name": "gateway",
                    "Image": "gateway@sha256:" + "0" * 64,
                    "PortMappings": [{"ContainerPort": 8080}],
                    "Environment": [{"Name": "A", "Value": "b"}],
                    "ReadonlyRootFilesystem": True,
                }
            ],
        ),
        "Service": resource(
            "ECS::Service",
            Cluster=ref("Cluster"),
            TaskDefinition=ref("Task"),
            DesiredCount=2,
            LaunchType="FARGATE",
            DeploymentConfiguration={"DeploymentCircuitBreaker": {"Enable": True, "Rollback": True}},
            HealthCheckGracePeriodSeconds=60,
            NetworkConfiguration={
                "AwsvpcConfiguration": {"Subnets": [ref("SubnetA")], "SecurityGroups": [ref("Group")]}
            },
        ),
        "Target": resource(
            "ApplicationAutoScaling::ScalableTarget",
            ServiceNamespace="ecs",
            ScalableDimension="ecs:service:DesiredCount",
            ResourceId={"Fn::Sub": "service/${Cluster}/${Service.Name}"},
            MinCapacity=2,
            MaxCapacity=10,
        ),
        "Scaling": resource(
            "ApplicationAutoScaling::ScalingPolicy",
            PolicyName="cpu",
            PolicyType="TargetTrackingScaling",
            ScalingTargetId=ref("Target"),
            TargetTrackingScalingPolicyConfiguration={
                "TargetValue": 60,
                "PredefinedMetricSpecification": {"PredefinedMetricType": "ECSServiceAverageCPUUtilization"},
            },
        ),
    }
