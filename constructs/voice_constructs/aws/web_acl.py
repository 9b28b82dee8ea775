"""The web application firewall in front of the session API."""

from aws_cdk import aws_logs as logs
from aws_cdk import aws_wafv2 as wafv2
from constructs import Construct

from voice_blueprint.contract.session_api import TOKEN_HEADER
from voice_constructs.aws.pseudo import ACCOUNT_ID, PARTITION, REGION

MANAGED_RULES = ("AWSManagedRulesCommonRuleSet", "AWSManagedRulesKnownBadInputsRuleSet")
"""AWS's managed rule groups without extra charge."""

REDACTED_HEADERS = ("authorization", "x-api-key", TOKEN_HEADER.lower())

LOG_GROUP_PREFIX = "aws-waf-logs-"
"""Required prefix of WAF's log groups. Source:
https://docs.aws.amazon.com/waf/latest/developerguide/logging-cw-logs.html"""

RATE_WINDOW_S = 300


class WebAcl(Construct):
    """A web ACL that blocks addresses above the rate limit, and requests that match AWS's managed rules.

    It costs about 8 USD per month. The log only contains blocked requests, without credentials or query strings.

    Args:
        name: Prefix of the metrics.
        requests_per_address_5_min: Rate above which an address is blocked.
        log_group: Log group with the prefix ``LOG_GROUP_PREFIX``.
        resource_arn: ARN of the API stage.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        name: str,
        requests_per_address_5_min: int,
        log_group: logs.ILogGroup,
        resource_arn: str,
    ) -> None:
        super().__init__(scope, id_)
        rules = [
            self._build_managed_rule_group(name, priority, group)
            for priority, group in enumerate(MANAGED_RULES, start=1)
        ]
        acl = wafv2.CfnWebACL(
            self,
            "Acl",
            scope="REGIONAL",
            default_action=wafv2.CfnWebACL.DefaultActionProperty(allow={}),
            visibility_config=_build_visibility_config(f"{name}-all"),
            rules=[self._build_rate_rule(name, requests_per_address_5_min), *rules],
        )
        wafv2.CfnWebACLAssociation(self, "Association", web_acl_arn=acl.attr_arn, resource_arn=resource_arn)
        wafv2.CfnLoggingConfiguration(
            self,
            "Logging",
            resource_arn=acl.attr_arn,
            # WAF rejects the `:*` suffix of CDK's log group ARNs.
            log_destination_configs=[
                f"arn:{PARTITION}:logs:{REGION}:{ACCOUNT_ID}:log-group:{log_group.log_group_name}"
            ],
            logging_filter={
                "DefaultBehavior": "DROP",
                "Filters": [
                    {
                        "Behavior": "KEEP",
                        "Requirement": "MEETS_ANY",
                        "Conditions": [{"ActionCondition": {"Action": "BLOCK"}}],
                    }
                ],
            },
            redacted_fields=[
                *(
                    wafv2.CfnLoggingConfiguration.FieldToMatchProperty(single_header={"Name": header})
                    for header in REDACTED_HEADERS
                ),
                wafv2.CfnLoggingConfiguration.FieldToMatchProperty(query_string={}),
            ],
        )

    @staticmethod
    def _build_rate_rule(name: str, limit: int) -> wafv2.CfnWebACL.RuleProperty:
        return wafv2.CfnWebACL.RuleProperty(
            name="rate-per-address",
            priority=0,
            action=wafv2.CfnWebACL.RuleActionProperty(block={}),
            statement=wafv2.CfnWebACL.StatementProperty(
                rate_based_statement=wafv2.CfnWebACL.RateBasedStatementProperty(
                    aggregate_key_type="IP", limit=limit, evaluation_window_sec=RATE_WINDOW_S
                )
            ),
            visibility_config=_build_visibility_config(f"{name}-rate-per-address"),
        )

    @staticmethod
    def _build_managed_rule_group(name: str, priority: int, group: str) -> wafv2.CfnWebACL.RuleProperty:
        return wafv2.CfnWebACL.RuleProperty(
            name=group,
            priority=priority,
            override_action=wafv2.CfnWebACL.OverrideActionProperty(none={}),
            statement=wafv2.CfnWebACL.StatementProperty(
                managed_rule_group_statement=wafv2.CfnWebACL.ManagedRuleGroupStatementProperty(
                    name=group, vendor_name="AWS"
                )
            ),
            visibility_config=_build_visibility_config(f"{name}-{group}"),
        )


def _build_visibility_config(metric: str) -> wafv2.CfnWebACL.VisibilityConfigProperty:
    # In the console, sampled requests would expose the data that the log omits.
    return wafv2.CfnWebACL.VisibilityConfigProperty(
        cloud_watch_metrics_enabled=True, metric_name=metric, sampled_requests_enabled=False
    )
