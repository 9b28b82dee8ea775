"""The load balancers, their logs and their names."""

from pathlib import Path

import pytest

from blueprint.contract.environment import MEDIA_HOST
from blueprint.contract.network import GATEWAY_HTTP, GATEWAY_MEDIA
from blueprint.contract.session_api import HEALTH_PATH
from tests.stacks.aws.edge import CERTIFICATE, attributes, balancer, environment, listeners, target_of
from tests.synthesized import Stack, Stacks, edited_sandbox

# --- Load balancers -------------------------------------------------------------------------------------


def test_public_load_balancer_listens_for_tls_and_rtp_only(edge: Stack) -> None:
    assert set(listeners(edge, "internet-facing")) == {("TLS", 443), ("UDP", 5004)}
    assert set(listeners(edge, "internal")) == {("TCP", GATEWAY_HTTP.number)}


def test_rtp_goes_to_the_vad_fleet(sandbox: Stacks, edge: Stack) -> None:
    (action,) = listeners(edge, "internet-facing")["UDP", 5004]["DefaultActions"]
    export = action["TargetGroupArn"]["Fn::ImportValue"]
    (output,) = [value for value in sandbox["vad"].template["Outputs"].values() if value["Export"]["Name"] == export]
    groups = sandbox["vad"].of_type("ElasticLoadBalancingV2::TargetGroup")
    # The other is vfio's.
    (targets,) = [key for key, group in groups.items() if group["Properties"]["TargetType"] == "instance"]
    assert output["Value"] == {"Ref": targets}


def test_the_public_reaches_the_gateways_audio_and_api_gateway_its_sessions(edge: Stack) -> None:
    public = target_of(edge, listeners(edge, "internet-facing")["TLS", 443])
    private = target_of(edge, listeners(edge, "internal")["TCP", GATEWAY_HTTP.number])
    assert (public["Port"], private["Port"]) == (GATEWAY_MEDIA.number, GATEWAY_HTTP.number)
    for targets in (public, private):
        assert (targets["Protocol"], targets["TargetType"]) == ("TCP", "ip")
        assert (targets["HealthCheckProtocol"], targets["HealthCheckPath"]) == ("HTTP", HEALTH_PATH)


def test_tls_is_modern(edge: Stack) -> None:
    listener = listeners(edge, "internet-facing")["TLS", 443]
    assert listener["SslPolicy"] == "ELBSecurityPolicy-TLS13-1-2-Res-2021-06"
    assert listener["Certificates"] == [
        {"CertificateArn": {"Ref": next(iter(edge.of_type("CertificateManager::Certificate")))}}
    ]


def test_a_given_certificate_is_used_as_it_is(unnamed: Stack) -> None:
    assert listeners(unnamed, "internet-facing")["TLS", 443]["Certificates"] == [{"CertificateArn": CERTIFICATE}]
    assert not unnamed.of_type("CertificateManager::Certificate")
    assert not unnamed.of_type("Route53::RecordSet")
    name, _ = balancer(unnamed, "internet-facing")
    assert environment(unnamed)[MEDIA_HOST.name] == {"Fn::GetAtt": [name, "DNSName"]}


@pytest.mark.parametrize("cross_zone", [True, False])
def test_callers_cross_zones_if_the_file_says_so(edge: Stack, tmp_path: Path, cross_zone: bool) -> None:
    stack = edited_sandbox({"aws.edge.cross_zone": True}, tmp_path)["edge"] if cross_zone else edge
    _, public = balancer(stack, "internet-facing")
    assert attributes(public)["load_balancing.cross_zone.enabled"] == str(cross_zone).lower()


def test_load_balancers_refuse_deletion_where_the_file_says_so(edge: Stack, tmp_path: Path) -> None:
    edits = {"aws.deletion_protection": True}
    refusing = edited_sandbox(edits, tmp_path)["edge"]
    for stack, protected in ((edge, "false"), (refusing, "true")):
        for scheme in ("internet-facing", "internal"):
            _, found = balancer(stack, scheme)
            assert attributes(found)["deletion_protection.enabled"] == protected
    assert (edge.termination_protection, refusing.termination_protection) == (False, True)


def test_each_load_balancer_has_its_tiers_security_group_and_nothing_opens_it_further(edge: Stack) -> None:
    for scheme, tier in (("internet-facing", "PublicLoadBalancer"), ("internal", "ApiLoadBalancer")):
        _, found = balancer(edge, scheme)
        (group,) = found["SecurityGroups"]
        assert tier in group["Fn::ImportValue"]
    _, internal = balancer(edge, "internal")
    assert internal["EnforceSecurityGroupInboundRulesOnPrivateLinkTraffic"] == "off"
    kinds = {resource["Type"] for resource in edge.template["Resources"].values()}
    assert not {kind for kind in kinds if kind.startswith("AWS::EC2::SecurityGroup")}


def test_the_world_reaches_the_public_listeners_and_nothing_else(sandbox: Stacks) -> None:
    """Audio by TLS and by UDP, and agents by TLS, which the sandbox has."""
    open_rules = [
        (rule["IpProtocol"], rule["FromPort"], rule["ToPort"])
        for group in sandbox["network"].properties("EC2::SecurityGroup")
        for rule in group.get("SecurityGroupIngress", [])
        if rule.get("CidrIp") == "0.0.0.0/0"
    ]
    assert sorted(open_rules) == [("tcp", 443, 443), ("tcp", 443, 443), ("udp", 5004, 5004)]


def test_access_logs_are_encrypted_private_and_forgotten(production: Stack) -> None:
    _, public = balancer(production, "internet-facing")
    (bucket,) = production.of_type("S3::Bucket")
    assert attributes(public)["access_logs.s3.enabled"] == "true"
    assert attributes(public)["access_logs.s3.bucket"] == {"Ref": bucket}
    properties = production.the("S3::Bucket")
    assert set(properties["PublicAccessBlockConfiguration"].values()) == {True}
    (encryption,) = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert encryption["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    (rule,) = properties["LifecycleConfiguration"]["Rules"]
    assert rule["ExpirationInDays"] == 90
    deny, *allow = production.the("S3::BucketPolicy")["PolicyDocument"]["Statement"]
    assert deny["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    for statement in allow:
        assert statement["Principal"] == {"Service": "delivery.logs.amazonaws.com"}
        assert statement["Condition"]["StringEquals"]["aws:SourceAccount"] == {"Ref": "AWS::AccountId"}
    key = production.the("KMS::Key")["KeyPolicy"]["Statement"]
    assert any(statement["Principal"] == {"Service": "delivery.logs.amazonaws.com"} for statement in key)


# --- Names ----------------------------------------------------------------------------------------------


def test_own_names_have_one_certificate_and_lead_to_api_and_audio(edge: Stack) -> None:
    certificate = edge.the("CertificateManager::Certificate")
    names = {certificate["DomainName"], *certificate["SubjectAlternativeNames"]}
    assert names == {"api.voice.example.com", "media.voice.example.com"}
    assert {option["DomainName"]: option["HostedZoneId"] for option in certificate["DomainValidationOptions"]} == (
        dict.fromkeys(names, "Z0123456789EXAMPLE")
    )
    records = {record["Name"]: record["AliasTarget"]["DNSName"] for record in edge.properties("Route53::RecordSet")}
    public, _ = balancer(edge, "internet-facing")
    (domain,) = edge.of_type("ApiGateway::DomainName")
    assert records == {
        "api.voice.example.com": {"Fn::GetAtt": [domain, "RegionalDomainName"]},
        "media.voice.example.com": {"Fn::GetAtt": [public, "DNSName"]},
    }
    assert edge.the("ApiGateway::DomainName")["SecurityPolicy"] == "TLS_1_2"
    mapping = edge.the("ApiGateway::BasePathMapping")
    assert mapping["DomainName"] == {"Ref": domain}
    assert mapping["Stage"] == {"Ref": next(iter(edge.of_type("ApiGateway::Stage")))}
    assert environment(edge)[MEDIA_HOST.name] == "media.voice.example.com"
