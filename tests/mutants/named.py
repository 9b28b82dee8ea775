"""Formerly undetected mistakes: each is applied to a copy of the repository, where its tests must fail."""

from typing import NamedTuple

ALERTS = ("tests/stacks/aws/test_alert_table.py",)
NUMBERS = ("tests/stacks/aws/test_numbers.py",)
SETTINGS = (
    "tests/settings/test_settings.py::test_setting_reaches_a_template[Deployment.aws.Aws.vad.VadFleet.warm_up_s]",
)

TIERS = "voice_blueprint/observability/aws/alerts/tiers.py"
CONSTRUCTS = "constructs/voice_constructs/aws"


class Named(NamedTuple):
    """A text in a file, its replacement, and the tests that must detect the change."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


AWS_MUTANTS = (
    Named("ring alert at 60 %", TIERS,
          "build_above_threshold_rule(80, 2, 3)", "build_above_threshold_rule(60, 2, 3)", ALERTS),
    Named("first transcript after 9 s", "voice_blueprint/observability/alerting.py",
          "first words of a transcript.\",\n        1000,", "first words of a transcript.\",\n        9000,", ALERTS),
    Named("a tenth of calls may be late", TIERS, "MAX_LATE_SAMPLE_PERCENT = 5", "MAX_LATE_SAMPLE_PERCENT = 10", ALERTS),
    Named("10 % of requests fail", TIERS,
          "build_above_threshold_rule(0.01, 3, 5)", "build_above_threshold_rule(0.1, 3, 5)", ALERTS),
    Named("fewest free slots", TIERS, '"FreeSlots", "Maximum"', '"FreeSlots", "Minimum"', ALERTS),
    Named("any busy GPU fleet", TIERS, 'aggregation="MIN"', 'aggregation="MAX"', ALERTS),
    Named("callers notice nothing", TIERS, "affects_callers=True", "affects_callers=False", ALERTS),
    Named("budget at 8 %", f"{CONSTRUCTS}/budget.py",
          "MAX_BUDGET_SPENT_PERCENT = 80", "MAX_BUDGET_SPENT_PERCENT = 8", ALERTS),
    Named("heartbeat of 90 s", "voice_blueprint/engines/launch/coldstart.py",
          "HEARTBEAT_TIMEOUT_S_BY_ARTIFACTS = {False: 900", "HEARTBEAT_TIMEOUT_S_BY_ARTIFACTS = {False: 90", NUMBERS),
    Named("half of the hosts replaced at once", f"{CONSTRUCTS}/host.py",
          "min_healthy_percentage=100 if room", "min_healthy_percentage=50 if room", NUMBERS),
    Named("flows stay 300 s with a host that left", f"{CONSTRUCTS}/vad.py",
          "deregistration_delay=Duration.seconds(0)", "deregistration_delay=Duration.seconds(300)", NUMBERS),
    Named("flows of UDP do not stick", f"{CONSTRUCTS}/vad.py",
          '"stickiness.enabled", "true"', '"stickiness.enabled", "false"', NUMBERS),
    Named("gateway grows each 15 min", f"{CONSTRUCTS}/fargate.py",
          "SCALE_OUT_COOLDOWN_S = 60", "SCALE_OUT_COOLDOWN_S = 900", NUMBERS),
    Named("policies average every metric", f"{CONSTRUCTS}/scaling.py",
          '"Maximum" if rule.statistic', '"Average" if rule.statistic', NUMBERS),
    Named("warm_up_s of the file is not read", f"{CONSTRUCTS}/host.py",
          "Duration.seconds(props.warm_up_s)", "Duration.seconds(300)", SETTINGS),
)  # fmt: skip
