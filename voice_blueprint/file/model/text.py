"""Formats of strings in a deployment file: names, addresses, and ids of existing resources.

Each format is ASCII-only and as strict as the cloud's own rule, so that a mistyped id is rejected before the deploy.
``create_text_metadata`` adds a description and an example to the pattern, for messages, the schema and the settings
page.
"""

from datetime import date
from ipaddress import IPv4Network
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

PATTERN_MESSAGE_KEY = "patternErrorMessage"
"""JSON schema keyword for a message that editors show instead of their own."""


def create_text_metadata(pattern: str, form: str, example: str, *, max_length: int | None = None) -> Any:  # noqa: ANN401  as pydantic's Field
    """Return the metadata of a string field with a format.

    Args:
        pattern: Regular expression that matches the whole string. Pydantic compiles it.
        form: Description of the format, which follows "should be" in messages.
        example: A string that matches.
        max_length: Maximum length, if the pattern does not limit it.
    """
    words = f"should be {form}, such as {example}"
    return Field(
        pattern=pattern, examples=[example], json_schema_extra={PATTERN_MESSAGE_KEY: words}, max_length=max_length
    )


def _check_date(value: str) -> str:
    date.fromisoformat(value)
    return value


_EXAMPLE_ORIGIN = "https://app.example.com"


def _check_origin(value: str) -> str:
    try:
        urlsplit(value)
    except ValueError:
        raise ValueError(
            f"{value} should be a name or an IPv6 address in brackets, such as {_EXAMPLE_ORIGIN}"
        ) from None
    return value


def _check_address_range(value: str) -> str:
    IPv4Network(value, strict=False)
    return value


IsoDate = Annotated[
    str, create_text_metadata(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", "a day", "2026-11-22"), AfterValidator(_check_date)
]

LoadCurveName = Annotated[
    str,
    create_text_metadata(
        r"^(flat|business-day|spike|[A-Za-z0-9_][A-Za-z0-9_./-]*\.csv)$",
        "flat, business-day, spike, or a CSV file in the same folder",
        "monday.csv",
        max_length=255,
    ),
]

MAX_NAME_LENGTH = 32
Name = Annotated[
    str,
    create_text_metadata(
        "^[a-z][a-z0-9]*(-[a-z0-9]+)*$",
        "lower-case words and digits joined by hyphens",
        "voice-1",
        max_length=MAX_NAME_LENGTH,
    ),
]
"""Part of AWS and Azure resource names."""
PoolName = Annotated[
    str,
    create_text_metadata(
        "^[a-z][a-z0-9]{0,11}$", "up to 12 lower-case letters and digits, beginning with a letter", "h100"
    ),
]
"""The limit is AKS's for Linux pools."""
ImageDigest = Annotated[
    str,
    create_text_metadata(
        "^sha256:[0-9a-f]{64}$", "sha256: and 64 hexadecimal digits", f"sha256:{'0123456789abcdef' * 4}"
    ),
]
"""Digest of a container image; tags are not accepted, since they can move."""
Revision = Annotated[
    str,
    create_text_metadata(
        "^[0-9a-f]{40}$", "a commit's 40 hexadecimal digits", "f0fe81560cb8b68660e564f55dd99207059c092e"
    ),
]
"""Commit of a model's repository."""
HubRepository = Annotated[
    str,
    create_text_metadata(
        "^[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9_.-]+$",
        "owner and repository at Hugging Face",
        "Systran/faster-whisper-large-v3",
        max_length=96,
    ),
]
Language = Annotated[
    str, create_text_metadata("^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$", "a language tag", "en-US", max_length=35)
]
TwilioAccountSid = Annotated[
    str,
    create_text_metadata(
        "^AC[0-9a-f]{32}$", "an account's SID: AC and 32 hexadecimal digits", f"AC{'0123456789abcdef' * 2}"
    ),
]
KubernetesVersion = Annotated[str, create_text_metadata(r"^1\.[0-9]{2}$", "a minor version in quotes", "1.33")]
TimeOfDay = Annotated[
    str, create_text_metadata("^([01][0-9]|2[0-3]):[0-5][0-9]$", "hours and minutes in quotes, 00:00 to 23:59", "01:00")
]

# Addresses

_DNS_LABEL_PATTERN = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_HOST_PATTERN = rf"{_DNS_LABEL_PATTERN}(\.{_DNS_LABEL_PATTERN})*"
_PORT_PATTERN = ":[1-9][0-9]{0,4}"
_PATH_CHAR_PATTERN = r"(%[0-9A-Fa-f]{2}|[A-Za-z0-9._~:@!$&'()*+,;=/-])"
"""https://www.rfc-editor.org/rfc/rfc3986#section-3.3; other characters are percent-encoded."""
_SEGMENT_CHAR_PATTERN = _PATH_CHAR_PATTERN.replace("/", "")
_PATH_AND_QUERY_PATTERN = rf"(/({_PATH_CHAR_PATTERN}|[?#])*)?"

DomainName = Annotated[
    str,
    create_text_metadata(
        rf"^({_DNS_LABEL_PATTERN}\.)+[a-z]([a-z0-9-]{{0,61}}[a-z0-9])$",
        "a domain name in lower case, international ones in their xn-- form",
        "voice.example.com",
        max_length=240,  # of 253, minus the labels that are prepended
    ),
]
HttpsUrl = Annotated[
    str,
    create_text_metadata(
        rf"^https://{_HOST_PATTERN}({_PORT_PATTERN})?{_PATH_AND_QUERY_PATTERN}$",
        "an https URL with its host in lower case",
        "https://login.example.com/",
    ),
]
PublicUrl = Annotated[
    str,
    create_text_metadata(
        rf"^https://{_HOST_PATTERN}(/{_PATH_CHAR_PATTERN}*{_SEGMENT_CHAR_PATTERN})?$",
        "an https URL on port 443, without query, fragment and final slash",
        "https://engines.example.com/v1",
    ),
]
"""Agents may only connect to port 443, and append paths to the URL."""
CollectorUrl = Annotated[
    str,
    create_text_metadata(
        rf"^https://{_HOST_PATTERN}{_PATH_AND_QUERY_PATTERN}$",
        "an https URL on port 443",
        "https://collector.example.com/v1/traces",
    ),
]
RunbookUrl = Annotated[
    str,
    create_text_metadata(
        rf"^https://{_HOST_PATTERN}({_PORT_PATTERN})?(/({_PATH_CHAR_PATTERN}|[?#])*{_SEGMENT_CHAR_PATTERN})?$",
        "an https URL without a final slash",
        "https://wiki.example.com/runbooks",
    ),
]
Origin = Annotated[
    str,
    create_text_metadata(
        rf"^(https://({_HOST_PATTERN}|\[[0-9a-f:]{{2,39}}\])({_PORT_PATTERN})?|http://localhost({_PORT_PATTERN})?)$",
        "scheme, host and port of a web page, as browsers send them",
        _EXAMPLE_ORIGIN,
    ),
    AfterValidator(_check_origin),
]
"""``*`` is not accepted, since it would allow every web page."""
EmailAddress = Annotated[
    str,
    create_text_metadata(
        rf"^[A-Za-z0-9.!#$%&'*+/=?^_`{{|}}~-]+@({_DNS_LABEL_PATTERN}\.)+{_DNS_LABEL_PATTERN}$",
        "an e-mail address with its domain in lower case",
        "oncall@example.com",
        max_length=254,
    ),
]

# Ids on AWS

_HEX_DIGIT = "[0-9a-f]"
AccountId = Annotated[str, create_text_metadata(r"^[0-9]{12}$", "an account's 12 digits in quotes", "123456789012")]
AwsZone = Annotated[str, create_text_metadata(r"^[a-z]{2}(-[a-z]+)+-[0-9][a-z]$", "an availability zone", "us-east-1a")]
VpcEndpointName = Annotated[
    str,
    create_text_metadata(
        r"^[a-z0-9-]{1,60}(\.[a-z0-9-]{1,60}){0,3}$",
        "the last part of a VPC endpoint's service name",
        "ecr.dkr",
    ),
]
MachineImage = Annotated[
    str,
    create_text_metadata(
        rf"^(ami-{_HEX_DIGIT}{{8}}({_HEX_DIGIT}{{9}})?|/[A-Za-z0-9_./-]{{1,1000}}(:[1-9][0-9]{{0,9}})?)$",
        "an AMI's id (ami- and 8 or 17 hexadecimal digits), or an SSM parameter with its version (/voice/vad:3)",
        "ami-0123456789abcdef0",
    ),
]
"""Id of an AMI, or an SSM parameter that contains one, followed by a colon and the parameter's version."""
ReservationId = Annotated[
    str,
    create_text_metadata(
        rf"^cr-{_HEX_DIGIT}{{8}}({_HEX_DIGIT}{{9}})?$", "cr- and 8 or 17 hexadecimal digits", "cr-0123456789abcdef0"
    ),
]
HostedZoneId = Annotated[
    str,
    create_text_metadata(
        r"^Z[A-Z0-9]{1,31}$", "a hosted zone's id: Z, then capital letters and digits", "Z0123456789EXAMPLE"
    ),
]
CertificateArn = Annotated[
    str,
    create_text_metadata(
        r"^arn:aws(-cn|-us-gov)?:acm:[a-z]{2}(-[a-z]+)+-[0-9]:[0-9]{12}:certificate/[0-9A-Za-z-]{1,64}$",
        "the ARN of a certificate in ACM",
        "arn:aws:acm:us-east-1:123456789012:certificate/12345678-1234-1234-1234-123456789012",
    ),
]
SnapshotName = Annotated[
    str,
    create_text_metadata(
        "^[A-Za-z]([.-]?[A-Za-z0-9])*$",
        "letters, digits and single hyphens or dots, beginning with a letter",
        "production-state-2026-11-22",
        max_length=255,
    ),
]
SecretPath = Annotated[
    str,
    create_text_metadata(
        "^[A-Za-z0-9_/+=.@-]{1,512}$", "a name in Secrets Manager: letters, digits and /_+=.@-", "oncall/webhook"
    ),
]
SecretName = Annotated[
    str, create_text_metadata("^[0-9a-zA-Z-]{1,127}$", "up to 127 letters, digits and hyphens", "engine-key")
]
"""Name of an existing secret, in Secrets Manager on AWS or a key vault on Azure, or of a certificate in a vault."""

# Ids on Azure

_GUID_PATTERN = rf"{_HEX_DIGIT}{{8}}(-{_HEX_DIGIT}{{4}}){{3}}-{_HEX_DIGIT}{{12}}"
_EXAMPLE_SUBSCRIPTION_ID = "00000000-0000-0000-0000-000000000000"
_RESOURCE_NAME_PATTERN = "[a-z0-9]([a-z0-9_.-]{0,78}[a-z0-9_])?"
"""Names of networks, subnets and capacity reservation groups.
https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules lists all rules."""


def _create_azure_id_metadata(provider: str, *levels: tuple[str, str, str]) -> Any:  # noqa: ANN401  as pydantic's Field
    """Return the metadata of a resource id, which is case-insensitive as in Azure.

    Args:
        provider: Provider without ``Microsoft.``, such as ``KeyVault``.
        *levels: Type, name pattern and example name of each resource, from the outermost inwards.
    """
    group = "[a-z0-9_().-]{0,89}[a-z0-9_()-]"
    patterns = "".join(f"/{kind}/{name}" for kind, name, _ in levels)
    examples = "".join(f"/{kind}/{example}" for kind, _, example in levels)
    return create_text_metadata(
        rf"(?i)^/subscriptions/{_GUID_PATTERN}/resourceGroups/{group}/providers/Microsoft\.{provider}{patterns}$",
        "a whole resource id",
        f"/subscriptions/{_EXAMPLE_SUBSCRIPTION_ID}/resourceGroups/shared/providers/Microsoft.{provider}{examples}",
    )


_NETWORK_LEVEL = ("virtualNetworks", _RESOURCE_NAME_PATTERN, "hub")

ObjectId = Annotated[
    str,
    create_text_metadata(
        f"^{_GUID_PATTERN}$", "the object id of a group in Microsoft Entra", "11111111-2222-3333-4444-555555555555"
    ),
]
NetworkId = Annotated[str, _create_azure_id_metadata("Network", _NETWORK_LEVEL)]
SubnetId = Annotated[
    str, _create_azure_id_metadata("Network", _NETWORK_LEVEL, ("subnets", _RESOURCE_NAME_PATTERN, "nodes"))
]
RegistryId = Annotated[str, _create_azure_id_metadata("ContainerRegistry", ("registries", "[a-z0-9]{5,50}", "images"))]
WorkspaceId = Annotated[
    str,
    _create_azure_id_metadata("OperationalInsights", ("workspaces", "[a-z0-9][a-z0-9-]{2,61}[a-z0-9]", "shared-logs")),
]
DnsZoneId = Annotated[
    str,
    _create_azure_id_metadata(
        "Network", ("privateDnsZones", rf"{_DNS_LABEL_PATTERN}(\.{_DNS_LABEL_PATTERN})+", "privatelink.azurecr.io")
    ),
]
ReservationGroupId = Annotated[
    str, _create_azure_id_metadata("Compute", ("capacityReservationGroups", _RESOURCE_NAME_PATTERN, "a100"))
]
VaultId = Annotated[
    str, _create_azure_id_metadata("KeyVault", ("vaults", "[a-z][a-z0-9-]{1,22}[a-z0-9]", "certificates"))
]
AddressRange = Annotated[
    str,
    create_text_metadata(r"^([0-9]{1,3}\.){3}[0-9]{1,3}(/[0-9]{1,2})?$", "an IPv4 address or range", "198.51.100.0/24"),
    AfterValidator(_check_address_range),
]
AzureZone = Annotated[str, create_text_metadata("^[1-9]$", "the number of a zone, in quotes", "1")]
