"""Sample of alarms and their targets."""

from __future__ import annotations

import json

from tests.sandbox.aws.samples.parts import TAGS, Resources, ref, resource


def observability() -> Resources:
    """Return alarms and their targets."""
    metric = {"Namespace": "VoiceServe", "MetricName": "RxQueue", "Dimensions": [{"Name": "Fleet", "Value": "vad"}]}
    return {
        "Topic": resource(
            "SNS::Topic",
            KmsMasterKeyId="alias/aws/sns",
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
