"""IAM actions of `voice` commands: minimal policies for operators and pipelines.

Commands that deploy or delete stacks with the CDK also assume the roles of its bootstrap (``build_deployer_policy``). A
stack is deleted with the role that deployed it.
"""

_STACK_ACTIONS = {
    "cloudformation:DescribeStacks",
    "cloudformation:GetTemplate",
    "cloudformation:ListStackResources",
    "sts:GetCallerIdentity",
}
_REGION_ACTIONS = {"ec2:DescribeRegions"}
_QUOTA_ACTIONS = {
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeInstances",
    "servicequotas:GetAWSDefaultServiceQuota",
    "servicequotas:GetServiceQuota",
}
_ARTIFACT_ACTIONS = {"s3:GetObject", "s3:ListBucket"}
_DELETION_ACTIONS = {
    "cloudformation:CancelUpdateStack",
    "cloudformation:DeleteStack",
    "cloudformation:UpdateTerminationProtection",
    "ec2:DescribeInstances",
    "ec2:TerminateInstances",  # hosts of jobs
    "elasticloadbalancing:ModifyLoadBalancerAttributes",
    "logs:DeleteLogGroup",
    "logs:DescribeLogGroups",
    "s3:DeleteObject",
    "s3:DeleteObjectVersion",
    "s3:ListBucketVersions",
    "ssm:DeleteParameter",
    "ssm:GetParameter",
}

ACTIONS_BY_COMMAND: dict[str, frozenset[str]] = {
    command: frozenset(actions)
    for command, actions in {
        "cost": {"pricing:GetProducts"},
        "drain": {
            "autoscaling:DescribeAutoScalingGroups",
            "autoscaling:DescribeAutoScalingInstances",
            "autoscaling:DescribeLifecycleHooks",
            "autoscaling:TerminateInstanceInAutoScalingGroup",
            "ecs:DescribeTasks",
            "ecs:StopTask",
            *_STACK_ACTIONS,
        },
        "images": {"ec2:DescribeImages", "ssm:GetParameter"},
        "preflight": {
            "acm:DescribeCertificate",
            "acm:ListCertificates",
            "ec2:DescribeAddresses",
            "ec2:DescribeCapacityReservations",
            "ec2:DescribeImages",
            "ec2:DescribeInstanceTypeOfferings",
            "ec2:DescribeSubnets",
            "ec2:DescribeVpcs",
            "ec2:RunInstances",  # a dry run
            "ecr:BatchGetImage",
            "ecs:DescribeTasks",
            "ecs:ListClusters",
            "ecs:ListTagsForResource",
            "ecs:ListTasks",
            "elasticache:DescribeCacheClusters",
            "elasticloadbalancing:DescribeLoadBalancers",
            "elasticloadbalancing:DescribeTags",
            "iam:GetRole",
            "iam:SimulatePrincipalPolicy",
            "route53:GetHostedZone",
            "secretsmanager:DescribeSecret",
            "servicequotas:ListRequestedServiceQuotaChangeHistory",
            "servicequotas:RequestServiceQuotaIncrease",
            "ssm:GetParameter",
            *_STACK_ACTIONS,
            *_QUOTA_ACTIONS,
            *_ARTIFACT_ACTIONS,
        },
        "prune": {
            "application-autoscaling:DescribeScalableTargets",
            "application-autoscaling:RegisterScalableTarget",
            "autoscaling:CancelInstanceRefresh",
            "autoscaling:DescribeAutoScalingGroups",
            "autoscaling:DescribeLifecycleHooks",
            "autoscaling:UpdateAutoScalingGroup",
            "ecs:DescribeServices",
            "ecs:ListTasks",
            "ecs:StopTask",
            "ecs:UpdateService",
            "route53:UpdateHealthCheck",
            *_STACK_ACTIONS,
            *_REGION_ACTIONS,
            *_DELETION_ACTIONS,
        },
        "restore": {
            "ecs:UpdateService",
            "elasticache:CopySnapshot",
            "elasticache:CreateSnapshot",
            "elasticache:DescribeSnapshots",
            *_STACK_ACTIONS,
        },
        "rollout": {
            "autoscaling:DescribeAutoScalingGroups",
            "autoscaling:DescribeInstanceRefreshes",
            "cloudformation:CancelUpdateStack",
            "ssm:DeleteParameter",
            "ssm:GetParameter",
            "ssm:PutParameter",
            *_STACK_ACTIONS,
            *_QUOTA_ACTIONS,
            *_ARTIFACT_ACTIONS,
        },
        "rotate": {
            "ecs:DescribeServices",
            "ecs:UpdateService",
            "elasticache:DescribeUsers",
            "elasticache:ModifyUser",
            "kms:Decrypt",  # the secrets are encrypted with the deployment's key
            "kms:GenerateDataKey",
            "secretsmanager:DescribeSecret",
            "secretsmanager:GetRandomPassword",
            "secretsmanager:GetSecretValue",
            "secretsmanager:PutSecretValue",
            *_STACK_ACTIONS,
        },
        "status": {
            "autoscaling:DescribeAutoScalingGroups",
            "ce:GetCostAndUsage",
            # CloudFormation also reads each resource with the caller's permissions.
            "cloudformation:BatchDescribeTypeConfigurations",
            "cloudformation:DescribeStackDriftDetectionStatus",
            "cloudformation:DescribeStackResourceDrifts",
            "cloudformation:DetectStackDrift",
            "cloudformation:DetectStackResourceDrift",
            "cloudwatch:DescribeAlarms",
            "ec2:DescribeInstanceTypes",
            "ec2:DescribeLaunchTemplateVersions",
            "ecs:DescribeServices",
            "ecs:DescribeTaskDefinition",
            "elasticloadbalancing:DescribeLoadBalancerAttributes",
            *_STACK_ACTIONS,
            *_REGION_ACTIONS,
        },
        "teardown": {
            "autoscaling:DescribeAutoScalingGroups",
            "cloudwatch:DescribeAlarms",
            "cloudwatch:GetMetricStatistics",
            "cloudwatch:ListDashboards",
            "ec2:DescribeImages",
            "ec2:DescribeLaunchTemplates",
            "ec2:DescribeNatGateways",
            "ecr:DescribeImages",
            "ecr:DescribeRepositories",
            "ecs:DescribeClusters",
            "ecs:DescribeServices",
            "ecs:DescribeTaskDefinition",
            "elasticache:DescribeSnapshots",
            "iam:ListRoles",
            "kms:DescribeKey",
            "tag:GetResources",
            *_STACK_ACTIONS,
            *_REGION_ACTIONS,
            *_DELETION_ACTIONS,
        },
    }.items()
}
"""IAM actions by command. Tests compare the actions with the calls in the sources and in runs of each command."""
