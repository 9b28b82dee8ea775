"""The metadata service behaves like EC2's, and only supports version 2."""

from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from voice_sandbox.hosts.metadata import InstanceMetadata, MetadataService, MetadataTree

TTL = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
TREE: MetadataTree = {
    "instance-id": "i-1",
    "instance-type": "c8g.4xlarge",
    "local-ipv4": "127.0.0.1",
    "placement": {"region": "us-east-1", "availability-zone": "us-east-1a"},
}


@pytest.fixture
def tree() -> MetadataTree:
    return dict(TREE)


@pytest.fixture
def service(tree: MetadataTree) -> Iterator[MetadataService]:
    service = MetadataService("127.0.0.1", 0)
    service.add_host("127.0.0.1", InstanceMetadata(b"#!/bin/bash\n\xff", 1, lambda: tree))
    yield service
    service.close()


def ask(service: MetadataService, method: str, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", service.port)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def get_metadata(service: MetadataService, path: str) -> tuple[int, bytes]:
    _, token = ask(service, "PUT", "/latest/api/token", TTL)
    return ask(service, "GET", path, {"X-aws-ec2-metadata-token": token.decode()})


def test_user_data_is_served_unchanged(service: MetadataService) -> None:
    assert get_metadata(service, "/latest/user-data") == (200, b"#!/bin/bash\n\xff")


def test_nothing_is_returned_without_a_token(service: MetadataService) -> None:
    assert ask(service, "GET", "/latest/meta-data/instance-id", {})[0] == 401
    assert ask(service, "GET", "/latest/user-data", {"X-aws-ec2-metadata-token": "guessed"})[0] == 401


def test_a_token_has_a_lifetime(service: MetadataService) -> None:
    assert ask(service, "PUT", "/latest/api/token", {})[0] == 400


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_folder_lists_its_entries(service: MetadataService, slash: str) -> None:
    names = b"instance-id\ninstance-type\nlocal-ipv4\nplacement/"
    assert get_metadata(service, f"/2021-03-23/meta-data{slash}") == (200, names)
    assert get_metadata(service, f"/latest/meta-data/placement{slash}") == (200, b"region\navailability-zone")


def test_missing_items_are_not_found(service: MetadataService, tree: MetadataTree) -> None:
    assert get_metadata(service, "/latest/meta-data/spot/instance-action")[0] == 404
    tree["spot"] = {"instance-action": "soon"}
    assert get_metadata(service, "/latest/meta-data/spot/instance-action") == (200, b"soon")


def test_the_identity_document_has_the_region(service: MetadataService) -> None:
    assert b'"region": "us-east-1"' in get_metadata(service, "/latest/dynamic/instance-identity/document")[1]


def test_an_unknown_client_gets_no_metadata() -> None:
    service = MetadataService("127.0.0.1", 0)
    assert ask(service, "PUT", "/latest/api/token", TTL)[0] == 404
    service.close()
