"""Templates that together hold every type with an adapter, each with the properties that this project relies on."""

from __future__ import annotations

import json
from typing import Any

Resources = dict[str, Any]

POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
TAGS = [{"Key": "team", "Value": "voice"}]
ARM_IMAGE = "/aws/service/ecs/optimized-ami/amazon-linux-2023/arm64/recommended/image_id"
IMAGE_PARAMETER = {"Image": {"Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", "Default": ARM_IMAGE}}


def ref(name: str) -> dict[str, str]:
    return {"Ref": name}


def att(name: str, attribute: str) -> dict[str, list[str]]:
    return {"Fn::GetAtt": [name, attribute]}


def resource(kind: str, needs: list[str] | None = None, /, **properties: object) -> dict[str, Any]:
    return {"Type": f"AWS::{kind}", "Properties": properties} | ({"DependsOn": needs} if needs else {})


def vpc() -> Resources:
    """A VPC with two subnets and a security group."""
    zone = {"Fn::Select": [0, {"Fn::GetAZs": ""}]}
    other = {"Fn::Select": [1, {"Fn::GetAZs": ""}]}
    return {
        "Vpc": resource("EC2::VPC", CidrBlock="10.0.0.0/16", EnableDnsHostnames=True, Tags=TAGS),
        "SubnetA": resource("EC2::Subnet", VpcId=ref("Vpc"), CidrBlock="10.0.0.0/20", AvailabilityZone=zone),
        "SubnetB": resource("EC2::Subnet", VpcId=ref("Vpc"), CidrBlock="10.0.16.0/20", AvailabilityZone=other),
        "Group": resource("EC2::SecurityGroup", GroupDescription="test", VpcId=ref("Vpc")),
    }


def network() -> Resources:
    """Everything that can keep a VPC from going."""
    return vpc() | {
        "Gateway": resource("EC2::InternetGateway", Tags=TAGS),
        "Attachment": resource("EC2::VPCGatewayAttachment", VpcId=ref("Vpc"), InternetGatewayId=ref("Gateway")),
        "Table": resource("EC2::RouteTable", VpcId=ref("Vpc")),
        "Association": resource("EC2::SubnetRouteTableAssociation", SubnetId=ref("SubnetA"), RouteTableId=ref("Table")),
        "Default": resource(
            "EC2::Route",
            ["Attachment"],
            RouteTableId=ref("Table"),
            DestinationCidrBlock="0.0.0.0/0",
            GatewayId=ref("Gateway"),
        ),
        "Address": resource("EC2::EIP", ["Attachment"], Domain="vpc"),
        "Nat": resource(
            "EC2::NatGateway", ["Default"], SubnetId=ref("SubnetA"), AllocationId=att("Address", "AllocationId")
        ),
        "Storage": resource(
            "EC2::VPCEndpoint",
            VpcId=ref("Vpc"),
            ServiceName={"Fn::Sub": "com.amazonaws.${AWS::Region}.s3"},
            VpcEndpointType="Gateway",
            RouteTableIds=[ref("Table")],
        ),
        "Logs": resource(
            "EC2::VPCEndpoint",
            VpcId=ref("Vpc"),
            ServiceName={"Fn::Sub": "com.amazonaws.${AWS::Region}.logs"},
            VpcEndpointType="Interface",
            SubnetIds=[ref("SubnetA"), ref("SubnetB")],
            SecurityGroupIds=[ref("Group")],
            PrivateDnsEnabled=True,
        ),
        "Other": resource(
            "EC2::SecurityGroup",
            GroupDescription="test",
            VpcId=ref("Vpc"),
            SecurityGroupEgress=[{"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "CidrIp": "0.0.0.0/0"}],
        ),
        "In": resource(
            "EC2::SecurityGroupIngress",
            GroupId=att("Group", "GroupId"),
            IpProtocol="udp",
            FromPort=5004,
            ToPort=5004,
            SourceSecurityGroupId=ref("Other"),
            Description="audio",
        ),
        "Out": resource(
            "EC2::SecurityGroupEgress",
            GroupId=ref("Other"),
            IpProtocol="udp",
            FromPort=5004,
            ToPort=5004,
            DestinationSecurityGroupId=ref("Group"),
        ),
        "LogRole": resource("IAM::Role", AssumeRolePolicyDocument=POLICY),
        "LogGroup": resource("Logs::LogGroup", RetentionInDays=7),
        "Flow": resource(
            "EC2::FlowLog",
            ResourceId=ref("Vpc"),
            ResourceType="VPC",
            TrafficType="REJECT",
            LogGroupName=ref("LogGroup"),
            DeliverLogsPermissionArn=att("LogRole", "Arn"),
        ),
    }


def fleet() -> Resources:
    """A group of hosts with hooks, policies and reserved capacity. Takes the parameter `Image`."""
    group = ref("Fleet")
    hook = {
        "LifecycleHookName": "launching",
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING",
        "HeartbeatTimeout": 600,
        "DefaultResult": "ABANDON",
        "NotificationMetadata": "{}",
    }
    return vpc() | {
        "Role": resource("IAM::Role", AssumeRolePolicyDocument=POLICY),
        "Profile": resource("IAM::InstanceProfile", Roles=[ref("Role")]),
        "Cluster": resource("EC2::PlacementGroup", Strategy="cluster"),
        "Capacity": resource(
            "EC2::CapacityReservation",
            AvailabilityZone={"Fn::Select": [0, {"Fn::GetAZs": ""}]},
            InstanceCount=2,
            InstancePlatform="Linux/UNIX",
            InstanceType="p5.4xlarge",
            TagSpecifications=[{"ResourceType": "capacity-reservation", "Tags": TAGS}],
        ),
        "Template": resource(
            "EC2::LaunchTemplate",
            LaunchTemplateData={
                "ImageId": ref("Image"),
                "InstanceType": "c8g.12xlarge",
                "IamInstanceProfile": {"Arn": att("Profile", "Arn")},
                "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
                "BlockDeviceMappings": [
                    {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 40, "Encrypted": True, "VolumeType": "gp3"}}
                ],
                "NetworkInterfaces": [
                    {
                        "DeviceIndex": 0,
                        "Groups": [ref("Group")],
                        "EnaSrdSpecification": {"EnaSrdEnabled": True},
                    }
                ],
                "UserData": {"Fn::Base64": {"Fn::Sub": "#!/bin/sh\necho ${AWS::StackName}"}},
            },
        ),
        "Fleet": resource(
            "AutoScaling::AutoScalingGroup",
            MinSize="2",
            MaxSize="4",
            DefaultInstanceWarmup=120,
            MaxInstanceLifetime=604800,
            NewInstancesProtectedFromScaleIn=True,
            LaunchTemplate={
                "LaunchTemplateId": ref("Template"),
                "Version": att("Template", "LatestVersionNumber"),
            },
            VPCZoneIdentifier=[ref("SubnetA"), ref("SubnetB")],
            LifecycleHookSpecificationList=[hook],
            Tags=[{"Key": "team", "Value": "voice", "PropagateAtLaunch": True}],
        ),
        "Mixed": resource(
            "AutoScaling::AutoScalingGroup",
            MinSize="1",
            MaxSize="1",
            VPCZoneIdentifier=[ref("SubnetA")],
            MixedInstancesPolicy={
                "LaunchTemplate": {
                    "LaunchTemplateSpecification": {
                        "LaunchTemplateId": ref("Template"),
                        "Version": att("Template", "LatestVersionNumber"),
                    },
                    "Overrides": [{"InstanceType": "inf2.48xlarge"}],
                },
            },
        ),
        "Terminating": resource(
            "AutoScaling::LifecycleHook",
            AutoScalingGroupName=group,
            LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
            HeartbeatTimeout=900,
        ),
        "Policy": resource(
            "AutoScaling::ScalingPolicy",
            AutoScalingGroupName=group,
            PolicyType="StepScaling",
            AdjustmentType="ChangeInCapacity",
            StepAdjustments=[{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 2}],
        ),
        "Night": resource(
            "AutoScaling::ScheduledAction", AutoScalingGroupName=group, Recurrence="0 1 * * *", DesiredCapacity=2
        ),
        "Warm": resource("AutoScaling::WarmPool", AutoScalingGroupName=group, PoolState="Stopped", MinSize=1),
    }


def state() -> Resources:
    """A Valkey replication group whose user's password comes out of a secret."""
    password = {"Fn::Join": ["", ["{{resolve:secretsmanager:", ref("Secret"), ":SecretString:password::}}"]]}
    return vpc() | {
        "Secret": resource(
            "SecretsManager::Secret",
            Description="of the gateway",
            GenerateSecretString={
                "SecretStringTemplate": '{"username": "gateway"}',
                "GenerateStringKey": "password",
                "ExcludePunctuation": True,
                "PasswordLength": 40,
            },
            Tags=TAGS,
        ),
        "SecretPolicy": resource(
            "SecretsManager::ResourcePolicy",
            SecretId=ref("Secret"),
            ResourcePolicy={
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Deny",
                        "Principal": {"AWS": "*"},
                        "Action": "secretsmanager:DeleteSecret",
                        "Resource": "*",
                    }
                ],
            },
        ),
        "SecretTarget": resource(
            "SecretsManager::SecretTargetAttachment",
            SecretId=ref("Secret"),
            TargetId=ref("Cache"),
            TargetType="AWS::RDS::DBInstance",
        ),
        "Subnets": resource(
            "ElastiCache::SubnetGroup", Description="two zones", SubnetIds=[ref("SubnetA"), ref("SubnetB")]
        ),
        "Parameters": resource(
            "ElastiCache::ParameterGroup",
            CacheParameterGroupFamily="valkey8",
            Description="bounded",
            Properties={"maxmemory-policy": "volatile-ttl", "stream-node-max-entries": "100"},
        ),
        "Nobody": resource(
            "ElastiCache::User",
            UserId="nobody",
            UserName="default",
            Engine="valkey",
            AccessString="off -@all",
            NoPasswordRequired=True,
        ),
        "Gateway": resource(
            "ElastiCache::User",
            UserId="gateway",
            UserName="gateway",
            Engine="valkey",
            AccessString="on ~* +@all",
            AuthenticationMode={"Type": "password", "Passwords": [password]},
        ),
        "Users": resource(
            "ElastiCache::UserGroup", UserGroupId="callers", Engine="valkey", UserIds=[ref("Nobody"), ref("Gateway")]
        ),
        "Cache": resource(
            "ElastiCache::ReplicationGroup",
            ReplicationGroupDescription="sessions",
            Engine="valkey",
            EngineVersion="8.0",
            CacheNodeType="cache.r7g.large",
            NumNodeGroups=1,
            ReplicasPerNodeGroup=1,
            AutomaticFailoverEnabled=True,
            MultiAZEnabled=True,
            TransitEncryptionEnabled=True,
            AtRestEncryptionEnabled=True,
            CacheSubnetGroupName=ref("Subnets"),
            CacheParameterGroupName=ref("Parameters"),
            SecurityGroupIds=[ref("Group")],
            SnapshotRetentionLimit=7,
            UserGroupIds=[ref("Users")],
        ),
    }


def balancer() -> Resources:
    """A network load balancer for UDP and TLS, with names and a certificate."""
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
        "Http": resource(
            "ElasticLoadBalancingV2::Listener",
            LoadBalancerArn=ref("Inner"),
            Protocol="HTTP",
            Port=80,
            DefaultActions=[{"Type": "fixed-response", "FixedResponseConfig": {"StatusCode": "404"}}],
        ),
        "Rule": resource(
            "ElasticLoadBalancingV2::ListenerRule",
            ListenerArn=ref("Http"),
            Priority=1,
            Conditions=[{"Field": "path-pattern", "PathPatternConfig": {"Values": ["/v1/*"]}}],
            Actions=[{"Type": "fixed-response", "FixedResponseConfig": {"StatusCode": "200"}}],
        ),
        "Zone": resource(
            "Route53::HostedZone",
            Name="voice.internal.",
            VPCs=[{"VPCId": ref("Vpc"), "VPCRegion": ref("AWS::Region")}],
        ),
        "Record": resource(
            "Route53::RecordSet",
            HostedZoneId=ref("Zone"),
            Name="audio.voice.internal.",
            Type="CNAME",
            TTL="60",
            ResourceRecords=[att("Balancer", "DNSName")],
        ),
        "Certificate": resource(
            "CertificateManager::Certificate",
            DomainName="voice.example.com",
            ValidationMethod="DNS",
            DomainValidationOptions=[{"DomainName": "voice.example.com", "HostedZoneId": ref("Zone")}],
        ),
    }


def gateway() -> Resources:
    """A Fargate service with service discovery and scaling."""
    return vpc() | {
        "Namespace": resource("ServiceDiscovery::PrivateDnsNamespace", Name="voice.local", Vpc=ref("Vpc")),
        "Lookup": resource("ServiceDiscovery::HttpNamespace", Name="voice-lookup"),
        "Discovery": resource(
            "ServiceDiscovery::Service",
            Name="gateway",
            NamespaceId=ref("Namespace"),
            DnsConfig={"DnsRecords": [{"Type": "A", "TTL": 10}], "RoutingPolicy": "MULTIVALUE"},
        ),
        "Cluster": resource(
            "ECS::Cluster", ClusterSettings=[{"Name": "containerInsights", "Value": "enhanced"}], Tags=TAGS
        ),
        "Providers": resource(
            "ECS::ClusterCapacityProviderAssociations",
            Cluster=ref("Cluster"),
            CapacityProviders=["FARGATE"],
            DefaultCapacityProviderStrategy=[{"CapacityProvider": "FARGATE", "Weight": 1}],
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
            ServiceRegistries=[{"RegistryArn": att("Discovery", "Arn")}],
        ),
        "Target": resource(
            "ApplicationAutoScaling::ScalableTarget",
            ServiceNamespace="ecs",
            ScalableDimension="ecs:service:DesiredCount",
            ResourceId={"Fn::Sub": "service/${Cluster}/${Service.Name}"},
            MinCapacity=2,
            MaxCapacity=10,
            ScheduledActions=[
                {
                    "ScheduledActionName": "night",
                    "Schedule": "cron(0 1 * * ? *)",
                    "ScalableTargetAction": {"MinCapacity": 2},
                }
            ],
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


def api() -> Resources:
    """A REST API through a VPC link, with limits and a firewall."""
    place = {"RestApiId": ref("Api"), "ResourceId": ref("Sessions")}
    rule = {"CloudWatchMetricsEnabled": True, "SampledRequestsEnabled": True, "MetricName": "rate"}
    return vpc() | {
        "Balancer": resource(
            "ElasticLoadBalancingV2::LoadBalancer", Type="network", Scheme="internal", Subnets=[ref("SubnetA")]
        ),
        "Link": resource("ApiGateway::VpcLink", Name="voice", TargetArns=[ref("Balancer")]),
        "Api": resource(
            "ApiGateway::RestApi",
            Name="voice",
            EndpointConfiguration={"Types": ["REGIONAL"]},
            BinaryMediaTypes=["audio/wav"],
            Tags=TAGS,
        ),
        "Sessions": resource(
            "ApiGateway::Resource", RestApiId=ref("Api"), ParentId=att("Api", "RootResourceId"), PathPart="sessions"
        ),
        "Body": resource(
            "ApiGateway::Model",
            RestApiId=ref("Api"),
            ContentType="application/json",
            Schema={"type": "object", "required": ["language"]},
        ),
        "Checked": resource("ApiGateway::RequestValidator", RestApiId=ref("Api"), Name="b", ValidateRequestBody=True),
        "Callers": resource(
            "ApiGateway::Authorizer",
            RestApiId=ref("Api"),
            Name="callers",
            Type="COGNITO_USER_POOLS",
            ProviderARNs=["arn:aws:cognito-idp:us-east-1:123456789012:userpool/us-east-1_x"],
            IdentitySource="method.request.header.Authorization",
        ),
        "Open": resource(
            "ApiGateway::Method",
            **place,
            HttpMethod="POST",
            AuthorizationType="NONE",
            ApiKeyRequired=True,
            RequestModels={"application/json": ref("Body")},
            RequestValidatorId=ref("Checked"),
            MethodResponses=[{"StatusCode": "200"}],
            Integration={
                "Type": "HTTP_PROXY",
                "IntegrationHttpMethod": "POST",
                "Uri": {"Fn::Sub": "http://${Balancer.DNSName}/v1/sessions"},
                "ConnectionType": "VPC_LINK",
                "ConnectionId": ref("Link"),
                "ResponseTransferMode": "STREAM",
                "TimeoutInMillis": 900000,
                "IntegrationResponses": [{"StatusCode": "200"}],
            },
        ),
        "Busy": resource(
            "ApiGateway::GatewayResponse", RestApiId=ref("Api"), ResponseType="THROTTLED", StatusCode="429"
        ),
        "Deployment": resource("ApiGateway::Deployment", ["Open"], RestApiId=ref("Api")),
        "Stage": resource(
            "ApiGateway::Stage",
            RestApiId=ref("Api"),
            DeploymentId=ref("Deployment"),
            StageName="v1",
            TracingEnabled=True,
            AccessLogSetting={"DestinationArn": att("Access", "Arn"), "Format": "$context.requestId"},
            MethodSettings=[
                {
                    "ResourcePath": "/*",
                    "HttpMethod": "*",
                    "ThrottlingRateLimit": 100.5,
                    "ThrottlingBurstLimit": 50,
                    "MetricsEnabled": True,
                    "LoggingLevel": "INFO",
                },
                {"ResourcePath": "/sessions", "HttpMethod": "POST", "ThrottlingBurstLimit": 5},
            ],
        ),
        "Access": resource("Logs::LogGroup", RetentionInDays=7),
        "LogRole": resource("IAM::Role", AssumeRolePolicyDocument=POLICY),
        "Account": resource("ApiGateway::Account", CloudWatchRoleArn=att("LogRole", "Arn")),
        "Plan": resource(
            "ApiGateway::UsagePlan",
            ["Stage"],
            UsagePlanName="callers",
            ApiStages=[{"ApiId": ref("Api"), "Stage": "v1"}],
            Throttle={"RateLimit": 10.5, "BurstLimit": 5},
            Quota={"Limit": 1000, "Period": "DAY"},
        ),
        "Key": resource("ApiGateway::ApiKey", Enabled=True),
        "PlanKey": resource("ApiGateway::UsagePlanKey", KeyId=ref("Key"), KeyType="API_KEY", UsagePlanId=ref("Plan")),
        "Domain": resource(
            "ApiGateway::DomainName",
            DomainName="api.example.com",
            RegionalCertificateArn="arn:aws:acm:us-east-1:123456789012:certificate/x",
            EndpointConfiguration={"Types": ["REGIONAL"]},
            SecurityPolicy="TLS_1_2",
        ),
        "Mapping": resource(
            "ApiGateway::BasePathMapping",
            ["Stage"],
            DomainName=ref("Domain"),
            RestApiId=ref("Api"),
            Stage="v1",
            BasePath="voice",
        ),
        "Blocked": resource("WAFv2::IPSet", Scope="REGIONAL", IPAddressVersion="IPV4", Addresses=["192.0.2.0/24"]),
        "Acl": resource(
            "WAFv2::WebACL",
            Scope="REGIONAL",
            DefaultAction={"Allow": {}},
            VisibilityConfig=rule,
            Rules=[
                {
                    "Name": "rate",
                    "Priority": 0,
                    "Action": {"Block": {}},
                    "Statement": {"RateBasedStatement": {"Limit": 2000, "AggregateKeyType": "IP"}},
                    "VisibilityConfig": rule,
                },
                {
                    "Name": "blocked",
                    "Priority": 1,
                    "Action": {"Block": {}},
                    "Statement": {"IPSetReferenceStatement": {"Arn": att("Blocked", "Arn")}},
                    "VisibilityConfig": rule,
                },
            ],
        ),
        "Protection": resource(
            "WAFv2::WebACLAssociation",
            ["Stage"],
            WebACLArn=att("Acl", "Arn"),
            ResourceArn={"Fn::Sub": "arn:aws:apigateway:${AWS::Region}::/restapis/${Api}/stages/v1"},
        ),
        "WafLog": resource("Logs::LogGroup", LogGroupName="aws-waf-logs-voice"),
        "AclLog": resource(
            "WAFv2::LoggingConfiguration",
            ResourceArn=att("Acl", "Arn"),
            LogDestinationConfigs=[att("WafLog", "Arn")],
        ),
    }


def observability() -> Resources:
    """Alarms, and whom they tell."""
    metric = {"Namespace": "VoiceServe", "MetricName": "RxQueue", "Dimensions": [{"Name": "Fleet", "Value": "vad"}]}
    return {
        "Topic": resource(
            "SNS::Topic",
            KmsMasterKeyId="alias/aws/sns",
            Subscription=[{"Protocol": "email", "Endpoint": "first@example.com"}],
            Tags=TAGS,
        ),
        "TopicPolicy": resource(
            "SNS::TopicPolicy",
            Topics=[ref("Topic")],
            PolicyDocument={
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Sid": "alarms",
                        "Effect": "Allow",
                        "Principal": {"Service": "cloudwatch.amazonaws.com"},
                        "Action": "sns:Publish",
                        "Resource": ref("Topic"),
                    }
                ],
            },
        ),
        "Subscription": resource(
            "SNS::Subscription", TopicArn=ref("Topic"), Protocol="email", Endpoint="ops@example.com"
        ),
        "Alarm": resource(
            "CloudWatch::Alarm",
            **metric,
            Statistic="Maximum",
            Period=10,
            EvaluationPeriods=3,
            DatapointsToAlarm=2,
            Threshold=205,
            ComparisonOperator="GreaterThanThreshold",
            TreatMissingData="notBreaching",
            AlarmActions=[ref("Topic")],
            Tags=TAGS,
        ),
        "Affected": resource(
            "CloudWatch::CompositeAlarm",
            AlarmName="callers-are-affected",
            AlarmRule={"Fn::Sub": 'ALARM("${Alarm.Arn}")'},
            AlarmActions=[ref("Topic")],
            ActionsSuppressor=ref("Alarm"),
            ActionsSuppressorWaitPeriod=60,
            ActionsSuppressorExtensionPeriod=60,
        ),
        "Dashboard": resource("CloudWatch::Dashboard", DashboardBody=json.dumps({"widgets": []})),
        "LogGroup": resource("Logs::LogGroup", RetentionInDays=30, Tags=TAGS),
        "Stream": resource("Logs::LogStream", LogGroupName=ref("LogGroup")),
        "Errors": resource(
            "Logs::MetricFilter",
            LogGroupName=ref("LogGroup"),
            FilterPattern="{ $.level = ERROR }",
            MetricTransformations=[
                {
                    "MetricName": "Errors",
                    "MetricNamespace": "VoiceServe",
                    "MetricValue": "1",
                    "Dimensions": [{"Key": "Host", "Value": "$.host"}],
                }
            ],
        ),
        "LogAccess": resource(
            "Logs::ResourcePolicy",
            PolicyName="dns",
            PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": []}),
        ),
        "Rule": resource(
            "Events::Rule",
            EventPattern={"source": ["aws.autoscaling"]},
            Targets=[{"Id": "topic", "Arn": ref("Topic")}],
        ),
        "Budget": resource(
            "Budgets::Budget",
            Budget={
                "BudgetType": "COST",
                "TimeUnit": "MONTHLY",
                "BudgetLimit": {"Amount": 1000, "Unit": "USD"},
            },
            NotificationsWithSubscribers=[
                {
                    "Notification": {
                        "NotificationType": "ACTUAL",
                        "ComparisonOperator": "GREATER_THAN",
                        "Threshold": 80,
                    },
                    "Subscribers": [{"SubscriptionType": "EMAIL", "Address": "money@example.com"}],
                }
            ],
        ),
    }


def foundation() -> Resources:
    """Keys, buckets, repositories, parameters and roles."""
    statement = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": {"Fn::Sub": "${Bucket.Arn}/*"}}
    policy = {"Version": "2012-10-17", "Statement": [statement]}
    return {
        "Key": resource(
            "KMS::Key",
            Description="voice",
            EnableKeyRotation=True,
            RotationPeriodInDays=180,
            PendingWindowInDays=7,
            KeyPolicy={
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Principal": {"AWS": {"Fn::Sub": "arn:aws:iam::${AWS::AccountId}:root"}},
                        "Action": "kms:*",
                        "Resource": "*",
                    }
                ],
            },
            Tags=TAGS,
        ),
        "Alias": resource("KMS::Alias", AliasName="alias/voice", TargetKeyId=ref("Key")),
        "Bucket": resource(
            "S3::Bucket",
            BucketEncryption={
                "ServerSideEncryptionConfiguration": [
                    {
                        "BucketKeyEnabled": True,
                        "ServerSideEncryptionByDefault": {
                            "SSEAlgorithm": "aws:kms",
                            "KMSMasterKeyID": att("Key", "Arn"),
                        },
                    }
                ]
            },
            PublicAccessBlockConfiguration={
                "BlockPublicAcls": True,
                "BlockPublicPolicy": True,
                "IgnorePublicAcls": True,
                "RestrictPublicBuckets": True,
            },
            VersioningConfiguration={"Status": "Enabled"},
            OwnershipControls={"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
            LifecycleConfiguration={
                "Rules": [
                    {
                        "Id": "age",
                        "Status": "Enabled",
                        "ExpirationInDays": 30,
                        "NoncurrentVersionExpiration": {"NoncurrentDays": 3},
                        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
                        "Transitions": [{"StorageClass": "GLACIER", "TransitionInDays": 10}],
                    }
                ]
            },
            Tags=TAGS,
        ),
        "BucketPolicy": resource(
            "S3::BucketPolicy",
            Bucket=ref("Bucket"),
            PolicyDocument={
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Deny",
                        "Principal": {"AWS": "*"},
                        "Action": "s3:*",
                        "Resource": [att("Bucket", "Arn"), {"Fn::Sub": "${Bucket.Arn}/*"}],
                        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                    }
                ],
            },
        ),
        "Repository": resource(
            "ECR::Repository",
            ImageTagMutability="IMMUTABLE",
            ImageScanningConfiguration={"ScanOnPush": True},
            EncryptionConfiguration={"EncryptionType": "KMS", "KmsKey": att("Key", "Arn")},
            RepositoryPolicyText={
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Sid": "pull",
                        "Effect": "Allow",
                        "Principal": {"Service": "ecs-tasks.amazonaws.com"},
                        "Action": "ecr:BatchGetImage",
                    }
                ],
            },
            Tags=TAGS,
        ),
        "Parameter": resource("SSM::Parameter", Type="String", Value=att("Repository", "RepositoryUri")),
        "Role": resource(
            "IAM::Role",
            AssumeRolePolicyDocument=POLICY,
            ManagedPolicyArns=["arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"],
            Policies=[{"PolicyName": "inline", "PolicyDocument": policy}],
            Tags=TAGS,
        ),
        "Policy": resource("IAM::Policy", PolicyName="read", PolicyDocument=policy, Roles=[ref("Role")]),
        "Managed": resource("IAM::ManagedPolicy", PolicyDocument=policy, Roles=[ref("Role")]),
        "Profile": resource("IAM::InstanceProfile", Roles=[ref("Role")]),
        "Linked": resource("IAM::ServiceLinkedRole", AWSServiceName="spot.amazonaws.com"),
        "Metadata": resource("CDK::Metadata", Analytics="v2"),
        "Handle": resource("CloudFormation::WaitConditionHandle"),
    }


ALL = (network, fleet, state, balancer, gateway, api, observability, foundation)
