"""Checks the account's prerequisites for a first deploy: bootstrap, DNS zone, certificate and secrets."""

from collections.abc import Iterator

from botocore.exceptions import ClientError

from voice_blueprint.file.model.edge import Domain
from voice_ops.aws.account import REPORT_AREA, Account
from voice_ops.aws.refusals import get_error_code
from voice_ops.preflight.report import CheckResult, create_check_result

BOOTSTRAP_PARAMETER = "BootstrapVersion"
"""Name of the template parameter that contains the CDK bootstrap version."""


def check_bootstrap(account: Account) -> Iterator[CheckResult]:
    """Compare the CDK bootstrap version in the account with the version that the templates require."""
    template = next(iter(account.templates.values()))
    path = template["Parameters"][BOOTSTRAP_PARAMETER]["Default"]
    (rule,) = template["Rules"]["CheckBootstrapVersion"]["Assertions"]
    too_old = [int(version) for version in rule["Assert"]["Fn::Not"][0]["Fn::Contains"][0]]
    question, requirement = "CDK bootstrap", f"version {max(too_old) + 1} or later"
    target = (
        f"aws://{account.caller_identity['Account']}/{account.region} -c deployment={account.deployment.source.file}"
    )
    try:
        version = int(account.session.client("ssm").get_parameter(Name=path)["Parameter"]["Value"])
    except ClientError as error:
        if get_error_code(error) != "ParameterNotFound":
            raise
        yield create_check_result(
            REPORT_AREA, question, f"no parameter {path}", requirement, blocks=f"run `cdk bootstrap {target}`"
        )
        return
    advice = f"run `cdk bootstrap {target}` again" if version <= max(too_old) else ""
    yield create_check_result(REPORT_AREA, question, f"version {version}", requirement, blocks=advice)


def check_domain(account: Account) -> Iterator[CheckResult]:
    """Check the domain's hosted zone and the certificate for the TLS listener."""
    edge = account.deployment.aws.edge
    if edge.domain:
        yield _check_hosted_zone(account, edge.domain)
        yield _check_pending_certificate(account, edge.domain)
    if edge.certificate_arn:
        yield _check_existing_certificate(account, edge.certificate_arn)


def _check_hosted_zone(account: Account, domain: Domain) -> CheckResult:
    question, requirement = f"hosted zone {domain.zone_id}", f"public zone {domain.zone_name}"
    try:
        zone = account.session.client("route53").get_hosted_zone(Id=domain.zone_id)["HostedZone"]
    except ClientError as error:
        if get_error_code(error) not in {"NoSuchHostedZone", "InvalidInput"}:
            raise
        remedy = "set the id of your own zone in edge.domain, or create the zone in this account"
        return create_check_result(REPORT_AREA, question, "not in this account", requirement, blocks=remedy)
    name, private = zone["Name"].rstrip("."), zone.get("Config", {}).get("PrivateZone", False)
    is_valid = name == domain.zone_name and not private
    result = f"{'private' if private else 'public'} zone {name}"
    remedy = "callers and ACM require the public zone of that name: correct edge.domain"
    return create_check_result(REPORT_AREA, question, result, requirement, blocks="" if is_valid else remedy)


def _check_pending_certificate(account: Account, domain: Domain) -> CheckResult:
    """Report a certificate from an earlier deploy that is pending validation."""
    certificates = account.iter_paginated_items("acm", "list_certificates", "CertificateSummaryList[]")
    matching = [row for row in certificates if f".{row['DomainName']}".endswith(f".{domain.name}")]
    waiting = [row for row in matching if row.get("Status") in {"PENDING_VALIDATION", "FAILED", "VALIDATION_TIMED_OUT"}]
    result = ", ".join(f"{row['DomainName']} {row.get('Status', 'of unknown status')}" for row in matching)
    remedy = f"delegate {domain.zone_name} to the zone's name servers; ACM validates through it" if waiting else ""
    return create_check_result(
        REPORT_AREA, f"certificate of {domain.name}", result or "none yet", "created by the deploy", warns=remedy
    )


def _check_existing_certificate(account: Account, arn: str) -> CheckResult:
    question, requirement = "certificate of the TLS listener", f"issued, in {account.region}"
    region = arn.split(":")[3]
    if region != account.region:
        return create_check_result(
            REPORT_AREA, question, f"it is in {region}", requirement, blocks=f"request one in {account.region}"
        )
    try:
        status = account.session.client("acm").describe_certificate(CertificateArn=arn)["Certificate"]["Status"]
    except ClientError as error:
        if get_error_code(error) != "ResourceNotFoundException":
            raise
        return create_check_result(
            REPORT_AREA, question, "no such certificate", requirement, blocks="correct edge.certificate_arn"
        )
    remedy = "" if status == "ISSUED" else "finish its validation in ACM, or request another"
    return create_check_result(REPORT_AREA, question, status, requirement, blocks=remedy)


def check_secrets(account: Account) -> Iterator[CheckResult]:
    """Check that the secrets for the alert topic and the agent tasks exist, and are not being deleted."""
    for name, content in _collect_required_secrets(account).items():
        result, remedy = "it exists", ""
        try:
            description = account.session.client("secretsmanager").describe_secret(SecretId=name)
            if "DeletedDate" in description:
                # AWS still returns the description of the secret, but not its value.
                result = "scheduled for deletion"
                remedy = f"restore it: aws secretsmanager restore-secret --secret-id {name}"
        except ClientError as error:
            if get_error_code(error) != "ResourceNotFoundException":
                raise
            result = "no such secret"
            remedy = f"create it: aws secretsmanager create-secret --name {name} --secret-string <value>"
        yield create_check_result(
            REPORT_AREA, f"secret {name}", result, f"a secret that contains {content}", blocks=remedy
        )


def _collect_required_secrets(account: Account) -> dict[str, str]:
    """Return the expected contents of each secret, by its name in the file."""
    agents = account.deployment.aws.agents
    results = {account.deployment.aws.observability.chat_webhook_secret: "the webhook's URL"}
    if agents:
        results |= {
            agents.prompt_secret: "the prompt of the agents",
            agents.chat.key_secret: "the key of the language model",
            agents.speech.key_secret: "the key of the speech engine",
            agents.tools_key_secret: "the key that signs requests to the tools",
            agents.twilio.token_secret if agents.twilio else None: "the auth token of the Twilio account",
        }
    return {name: content for name, content in results.items() if name}
