"""Sample of a fleet."""

from __future__ import annotations

from tests.sandbox.aws.samples.parts import POLICY, Resources, att, ref, resource, vpc


def fleet() -> Resources:
    """Return a group of hosts with hooks and policies. The template has the parameter `Image`."""
    group = ref("Fleet")
    launching = {
        "LifecycleHookName": "launching",
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING",
        "HeartbeatTimeout": 600,
        "DefaultResult": "ABANDON",
        "NotificationMetadata": "{}",
    }
    terminating = {
        "LifecycleHookName": "terminating",
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
        "HeartbeatTimeout": 900,
    }
    return vpc() | {
        "Role": resource("IAM::Role", AssumeRolePolicyDocument=POLICY),
        "Profile": resource("IAM::InstanceProfile", Roles=[ref("Role")]),
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
            LifecycleHookSpecificationList=[launching, terminating],
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
        "Policy": resource(
            "AutoScaling::ScalingPolicy",
            AutoScalingGroupName=group,
            PolicyType="StepScaling",
            AdjustmentType="ChangeInCapacity",
            StepAdjustments=[{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 2}],
        ),
        "Warm": resource("AutoScaling::WarmPool", AutoScalingGroupName=group, PoolState="Stopped", MinSize=1),
    }
