"""The load balancers, their logs and their names."""

from pathlib import Path

import pytest

from tests.stacks.aws.edge import CERTIFICATE, attributes, balancer, environment, listeners, target_group
from tests.synthesized import Stack, Stacks, edited_sandbox
from voice_blueprint.contract.environment import MEDIA_HOST
from voice_blueprint.contract.network import GATEWAY_HTTP, GATEWAY_MEDIA
from voice_blueprint.contract.session_api import LIVENESS_PATH

# --- Load balancers -------------------------------------------------------------------------------------


def test_public_load_balancer_listens_for_tls_and_rtp_only(edge: Stack) -> None:
    assert set(listeners(edge, "internet-facing")) == {("TLS", 443), ("UDP", 5004)}
    assert set(listeners(edge, "internal")) == {("TCP", GATEWAY_HTTP.number)}


def test_rtp_is_forwarded_to_the_vad_fleet(sandbox: Stacks, edge: Stack) -> None:
    (action,) = listeners(edge, "internet-facing")["UDP", 5004]["DefaultActions"]
    export = action["TargetGroupArn"]["Fn::ImportValue"]
    (output,) = [value for value in sandbox["vad"].template["Outputs"].values() if value["Export"]["Name"] == export]
    groups = sandbox["vad"].of_type("ElasticLoadBalancingV2::TargetGroup")
    # The other target group is for vfio.
    (targets,) = [key for key, group in groups.items() if group["Properties"]["TargetType"] == "instance"]
    assert output["Value"] == {"Ref": targets}


def test_the_public_reaches_gateway_audio_and_api_gateway_reaches_its_sessions(edge: Stack) -> None:
    public = target_group(edge, listeners(edge, "internet-facing")["TLS", 443])
    private = target_group(edge, listeners(edge, "internal")["TCP", GATEWAY_HTTP.number])
    assert (public["Port"], private["Port"]) == (GATEWAY_MEDIA.number, GATEWAY_HTTP.number)
    for targets in (public, private):
        # The store's failover must not end connections.
        assert (targets["Protocol"], targets["TargetType"]) == ("TCP", "ip")
        assert (targets["HealthCheckProtocol"], targets["HealthCheckPath"]) == ("HTTP", LIVENESS_PATH)


def test_tls_policy_is_modern(edge: Stack) -> None:
    listener = listeners(edge, "internet-facing")["TLS", 443]
    assert listener["SslPolicy"] == "ELBSecurityPolicy-TLS13-1-2-Res-2021-06"
    assert listener["Certificates"] == [
        {"CertificateArn": {"Ref": next(iter(edge.of_type("CertificateManager::Certificate")))}}
    ]


def test_a_configured_certificate_is_used(edge_without_domain: Stack) -> None:
    assert listeners(edge_without_domain, "internet-facing")["TLS", 443]["Certificates"] == [
        {"CertificateArn": CERTIFICATE}
    ]
    assert not edge_without_domain.of_type("CertificateManager::Certificate")
    assert not edge_without_domain.of_type("Route53::RecordSet")
    name, _ = balancer(edge_without_domain, "internet-facing")
    assert environment(edge_without_domain)[MEDIA_HOST.name] == {"Fn::GetAtt": [name, "DNSName"]}


@pytest.mark.parametrize("cross_zone", [True, False])
def test_cross_zone_load_balancing_is_configurable(edge: Stack, tmp_path: Path, cross_zone: bool) -> None:
    stack = edited_sandbox({"aws.edge.cross_zone": True}, tmp_path)["edge"] if cross_zone else edge
    _, public = balancer(stack, "internet-facing")
    assert attributes(public)["load_balancing.cross_zone.enabled"] == str(cross_zone).lower()


def test_deletion_protection_of_load_balancers_is_configurable(edge: Stack, tmp_path: Path) -> None:
    edits = {"aws.deletion_protection": True}
    refusing = edited_sandbox(edits, tmp_path)["edge"]
    for stack, protected in ((edge, "false"), (refusing, "true")):
        for scheme in ("internet-facing", "internal"):
            _, found = balancer(stack, scheme)
            assert attributes(found)["deletion_protection.enabled"] == protected
    assert (edge.termination_protection, refusing.termination_protection) == (False, True)


def test_each_load_balancer_only_has_the_security_group_of_its_tier(edge: Stack) -> None:
    for scheme, tier in (("internet-facing", "PublicLoadBalancer"), ("internal", "ApiLoadBalancer")):
        _, found = balancer(edge, scheme)
        (group,) = found["SecurityGroups"]
        assert tier in group["Fn::ImportValue"]
    _, internal = balancer(edge, "internal")
    assert internal["EnforceSecurityGroupInboundRulesOnPrivateLinkTraffic"] == "off"
    kinds = {resource["Type"] for resource in edge.template["Resources"].values()}
    assert not {kind for kind in kinds if kind.startswith("AWS::EC2::SecurityGroup")}


def test_only_the_public_listeners_are_reachable(sandbox: Stacks) -> None:
    """Audio over TLS and UDP, and agents over TLS, which the sandbox has."""
    open_rules = [
        (rule["IpProtocol"], rule["FromPort"], rule["ToPort"])
        for group in sandbox["network"].properties("EC2::SecurityGroup")
        for rule in group.get("SecurityGroupIngress", [])
        if rule.get("CidrIp") == "0.0.0.0/0"
    ]
    assert sorted(open_rules) == [("tcp", 443, 443), ("tcp", 443, 443), ("udp", 5004, 5004)]


def test_access_logs_are_encrypted_private_and_expire(production: Stack) -> None:
    _, public = balancer(production, "internet-facing")
    assert attributes(public)["access_logs.s3.enabled"] == "true"
    bucket = attributes(public)["access_logs.s3.bucket"]["Ref"]
    properties = production.of_type("S3::Bucket")[bucket]["Properties"]
    assert set(properties["PublicAccessBlockConfiguration"].values()) == {True}
    (encryption,) = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert encryption["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    (rule,) = properties["LifecycleConfiguration"]["Rules"]
    assert rule["ExpirationInDays"] == 90
    (policy,) = (each for each in production.properties("S3::BucketPolicy") if each["Bucket"] == {"Ref": bucket})
    deny, *allow = policy["PolicyDocument"]["Statement"]
    assert deny["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    for statement in allow:
        assert statement["Principal"] == {"Service": "delivery.logs.amazonaws.com"}
        assert statement["Condition"]["StringEquals"]["aws:SourceAccount"] == {"Ref": "AWS::AccountId"}
    name = encryption["ServerSideEncryptionByDefault"]["KMSMasterKeyID"]["Fn::GetAtt"][0]
    key = production.of_type("KMS::Key")[name]["Properties"]["KeyPolicy"]["Statement"]
    assert any(statement["Principal"] == {"Service": "delivery.logs.amazonaws.com"} for statement in key)


# --- Names ----------------------------------------------------------------------------------------------


def test_custom_domain_names_share_a_certificate_and_refer_to_api_and_audio(edge: Stack) -> None:
    certificate = edge.only("CertificateManager::Certificate")
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
    assert edge.only("ApiGateway::DomainName")["SecurityPolicy"] == "TLS_1_2"
    mapping = edge.only("ApiGateway::BasePathMapping")
    assert mapping["DomainName"] == {"Ref": domain}
    assert mapping["Stage"] == {"Ref": next(iter(edge.of_type("ApiGateway::Stage")))}
    assert environment(edge)[MEDIA_HOST.name] == "media.voice.example.com"
