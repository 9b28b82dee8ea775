"""Creates boto3 sessions with timeouts and retries. Their clients reject responses that are not from AWS."""

import json
from functools import cache
from http import HTTPStatus
from typing import Any
from xml.etree import ElementTree

import boto3
import botocore.session
from botocore.config import Config
from botocore.model import OperationModel
from botocore.parsers import ResponseParserError

from voice_ops.timeouts import CONNECT_TIMEOUT_S, READ_TIMEOUT_S

XML_PROTOCOLS = {"query", "ec2", "rest-xml"}


def create_session(region: str) -> boto3.Session:
    """Create a session in a region, with the credentials that boto3 finds.

    Clients raise ``ResponseParserError`` if a proxy or a captive portal returns a page instead of AWS's response.
    Otherwise, boto3 would parse an HTML page from a JSON service as a response without content.

    Raises:
        BotoCoreError: The configuration cannot be read.
    """
    botocore_session = botocore.session.get_session()
    mode = botocore_session.get_config_variable("retry_mode")
    # The legacy mode, which is the SDK's default, makes five attempts and lacks the newer timeouts.
    retries: Any = {"mode": "standard" if mode == "legacy" else mode}
    botocore_session.set_default_client_config(
        Config(connect_timeout=CONNECT_TIMEOUT_S, read_timeout=READ_TIMEOUT_S, retries=retries)
    )
    botocore_session.register("before-parse", _reject_malformed_response)
    result = boto3.Session(botocore_session=botocore_session, region_name=region)
    # Creating a client takes longer than most requests, since boto3 builds the class of the client each time.
    result.client = cache(result.client)  # type: ignore[method-assign]
    return result


def _reject_malformed_response(**event: Any) -> None:  # noqa: ANN401  arguments of botocore's events
    """Reject a successful response that does not conform to the protocol of the service."""
    operation_model: OperationModel = event["operation_model"]
    response_dict: dict[str, Any] = event["response_dict"]
    failed = response_dict["status_code"] >= HTTPStatus.MULTIPLE_CHOICES
    if failed or operation_model.has_streaming_output or _has_text_payload(operation_model):
        return
    body, protocol = response_dict["body"], operation_model.service_model.resolved_protocol
    if "json" in protocol:
        conforms = _is_json_object(body)
    elif protocol in XML_PROTOCOLS:
        conforms = _is_xml(body)
    else:  # binary protocol, whose messages never start like an HTML page
        conforms = not body.lstrip().startswith(b"<")
    if body and not conforms:
        raise ResponseParserError(f"the response to {operation_model.name} is not in the format {protocol}")


def _has_text_payload(operation_model: OperationModel) -> bool:
    """Return True if the response body is text that a caller has stored, such as a bucket policy."""
    output = operation_model.output_shape
    payload = output.serialization.get("payload") if output else None
    return output is not None and payload is not None and output.members[payload].type_name == "string"


def _is_json_object(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except ValueError:
        return False


def _is_xml(body: bytes) -> bool:
    """Return True if the body is XML but not a well-formed HTML page."""
    try:
        root = ElementTree.fromstring(body)  # noqa: S314  botocore parses the same body in the same way
    except (ElementTree.ParseError, ValueError):
        return False
    return str(root.tag).rpartition("}")[2].lower() != "html"
