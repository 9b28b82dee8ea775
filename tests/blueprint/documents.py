"""Valid deployment documents, and functions that edit and load them."""

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

import voice_blueprint
from voice_blueprint import Deployment
from voice_blueprint.file.source import Location

DEPLOYMENTS = Path(__file__).parents[2] / "tests/deployments"
"""Folder of the tests' copies of the shipped deployment files."""

ABSENT = object()
"""New value of an edit that removes the key."""

MEASURED_CALLS = '{calls: 1000, date: "2026-11-22", conditions: of the tests}'

BASE = f"""\
name: base
environment: production
images:
  gateway: sha256:{"1" * 64}
  vad-dataplane: sha256:{"2" * 64}
  whisper-engine: sha256:{"3" * 64}
  telemetry: sha256:{"4" * 64}
image_signing:
  public_key: |
    -----BEGIN PUBLIC KEY-----
    MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEvLWaOCnv0yhZQeb1GqRjF92T2Cpa
    csE6Zfahqgo1miHHNTOEN50LXjNw2/bdY3E4iPs7Q2R1SbRGeXFpwzDHpA==
    -----END PUBLIC KEY-----
  signature: MEUCIQD3/2NnoaoKJmnz/jX+UGMDPi2M+OIEhhI6aGWxD5NGHwIgWJ2dDoxnrWedAyGsiEFgDYquEiXMmyqfFTP2svHZVPo=
accepted_checks:
  - id: ena-express-hops
    reason: measured on 2026-10-01
aws:
  region: us-east-1
  availability_zones: [us-east-1a, us-east-1b, us-east-1c]
  account: "123456789012"
  deletion_protection: true
  network:
    cidr: 10.40.0.0/16
    nat_gateways: 3
    interface_endpoints: []
    flow_log_retention_days: 30
  state:
    node_type: cache.r7g.large
    replicas: 1
    snapshot_retention_days: 1
  vad:
    instance_type: c8g.12xlarge
    hosts_per_zone: {{min: 1, max: 10}}
    huge_pages: {{size_mib: 2, count: 256}}
    ena_express: {{enabled: false, udp: false}}
    data_path: {{mode: af_xdp, mtu: 3498, rx_queues: 4, rx_ring_size: 256}}
    machine_image: ami-0123456789abcdef0
    scaling:
      - name: ring-high
        metric: RxRingOccupancy
        statistic: maximum
        comparison: above
        threshold: 80
        period_s: 10
        datapoints_to_alarm: 2
        evaluation_periods: 3
        missing_data: not-breaching
        steps: [{{adjustment: 2}}]
      - name: ring-low
        metric: RxRingOccupancy
        statistic: maximum
        comparison: below
        threshold: 20
        period_s: 60
        datapoints_to_alarm: 3
        evaluation_periods: 3
        missing_data: not-breaching
        steps: [{{adjustment: -1}}]
      - name: slots-high
        metric: SlotsTaken
        statistic: average
        comparison: above
        threshold: 70
        period_s: 10
        datapoints_to_alarm: 3
        evaluation_periods: 3
        missing_data: not-breaching
        steps: [{{adjustment: 1}}]
  asr:
    - name: p5
      instance_type: p5.4xlarge
      hosts: {{min: 4, max: 4}}
      engine: whisper
      revision: f0fe81560cb8b68660e564f55dd99207059c092e
      machine_image: ami-0123456789abcdef1
      purchase: {{option: on-demand}}
      scaling: []
    - name: p5-large
      instance_type: p5.48xlarge
      hosts: {{min: 1, max: 2}}
      engine: whisper
      revision: f0fe81560cb8b68660e564f55dd99207059c092e
      machine_image: ami-0123456789abcdef1
      availability_zones: [us-east-1a]
      purchase:
        option: capacity-reservation
        reservation_id: cr-0123456789abcdef0
      scaling:
        - name: busy
          metric: GpuBusy
          statistic: average
          comparison: above
          threshold: 90
          period_s: 10
          datapoints_to_alarm: 3
          evaluation_periods: 3
          missing_data: not-breaching
          steps: [{{adjustment: 1}}, {{lower_bound: 5, adjustment: 2}}]
        - name: idle
          metric: GpuBusy
          statistic: average
          comparison: below
          threshold: 30
          period_s: 60
          datapoints_to_alarm: 3
          evaluation_periods: 3
          missing_data: not-breaching
          steps: [{{adjustment: -1}}]
        - name: slots-high
          metric: SlotsTaken
          statistic: average
          comparison: above
          threshold: 80
          period_s: 10
          datapoints_to_alarm: 3
          evaluation_periods: 3
          missing_data: not-breaching
          steps: [{{adjustment: 1}}]
  edge:
    authorizer: {{kind: iam}}
    domain: {{name: voice.callers.dev, zone_id: Z0123456789EXAMPLE, zone_name: callers.dev}}
    throttle: {{requests_per_s: 100, burst: 200, requests_per_address_5_min: 10000}}
    caller_sessions: 10000
    caller_creations_per_s: 10
    gateway: {{vcpu: 1, memory_gib: 2, tasks: {{min: 3, max: 6}}, measured: {MEASURED_CALLS}}}
    cross_zone: false
    token_ttl_s: 300
    idle_timeout_s: 60
  observability:
    monthly_budget_usd: 100000
    email: oncall@example.com
    log_retention_days: 30
"""
"""Deployment on AWS that contains every setting that a check can refer to, and passes every check."""

AZURE_BASE = f"""\
name: azure-base
environment: production
images:
  router: sha256:{"1" * 64}
  device-plugin: sha256:{"2" * 64}
  dcgm-exporter: sha256:{"3" * 64}
  asr-vllm: sha256:{"4" * 64}
  lmcache: sha256:{"5" * 64}
  pd-router: sha256:{"6" * 64}
  tts-omni: sha256:{"7" * 64}
image_signing:
  public_key: |
    -----BEGIN PUBLIC KEY-----
    MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEvLWaOCnv0yhZQeb1GqRjF92T2Cpa
    csE6Zfahqgo1miHHNTOEN50LXjNw2/bdY3E4iPs7Q2R1SbRGeXFpwzDHpA==
    -----END PUBLIC KEY-----
  signature: MEUCIEy8Z9w7b0mk6LJqlIyivGaORg6u2eJHisKHo/0oCGU3AiEAisRvnAYGk9Rz+a/903vWeqkMyMQDuqvZGZSZW7Ewdjg=
accepted_checks: []
azure:
  location: southcentralus
  availability_zones: ["1", "2", "3"]
  kubernetes_version: "1.36"
  admin_groups: [11111111-2222-3333-4444-555555555555]
  network: {{cidr: 10.60.0.0/16, pod_cidr: 10.244.0.0/16, service_cidr: 10.61.0.0/16}}
  access: {{kind: jump-host}}
  system_pool: {{vm_size: Standard_D8ds_v5, nodes: {{min: 3, max: 6}}}}
  pools:
    - name: cells
      vm_size: Standard_NC96ads_A100_v4
      nodes: {{min: 1, max: 3}}
      surge_nodes: 1
      availability_zones: ["1"]
      purchase: {{option: on-demand}}
      topology_policy: best-effort
    - name: pairs
      vm_size: Standard_NC96ads_A100_v4
      nodes: {{min: 1, max: 2}}
      surge_nodes: 1
      purchase: {{option: on-demand}}
      topology_policy: restricted
    - name: h200
      vm_size: Standard_ND96isr_H200_v5
      nodes: {{min: 1, max: 1}}
      surge_nodes: 1
      purchase: {{option: on-demand}}
      topology_policy: best-effort
    - name: a100
      vm_size: Standard_NC24ads_A100_v4
      nodes: {{min: 1, max: 5}}
      surge_nodes: 1
      purchase: {{option: on-demand}}
      topology_policy: single-numa-node
  services:
    - kind: prefill-decode-cell
      name: cell
      model: voxtral-small-24b
      revision: {"a" * 40}
      pool: cells
      replicas: {{min: 1, max: 2}}
      load: {{sessions: 400, session_tokens: 1500, context_tokens: 32768}}
      cpus: 80
      lmcache: {{l1_gib: 200, l2_nvme_gib: 2000}}
    - kind: aggregated
      name: pair
      model: voxtral-small-24b
      revision: {"a" * 40}
      pool: pairs
      replicas: {{min: 2, max: 4}}
      load: {{sessions: 400, session_tokens: 1500, context_tokens: 32768}}
      tensor_parallel: 2
      cpus: 40
      quantization: none
      kv_cache_type: auto
      lmcache: {{l1_gib: 200, l2_nvme_gib: 0}}
    - kind: tts
      name: speech
      model: voxtral-4b-tts
      revision: {"b" * 40}
      pool: h200
      replicas: {{min: 2, max: 8}}
      sessions: 256
      cpus: 10
    - kind: chat
      name: qwen
      model: qwen3-8b
      revision: {"c" * 40}
      pools: [a100]
      replicas: {{min: 1, max: 4}}
      load: {{sessions: 400, session_tokens: 1500, context_tokens: 16384}}
      cpus: 10
      quantization: none
      kv_cache_type: auto
  model_cache_gib: 1024
  commercial: true
  model_agreements:
    - {{model: voxtral-4b-tts, reference: contract 2026-17 with the owner}}
"""
"""Deployment on Azure with the same properties."""

Edits = Mapping[str, object]
"""New values by dotted location, such as ``{"aws.asr.0.engine": "vllm"}``."""


class _PlainDumper(yaml.CSafeDumper):
    """Writes equal values in full instead of as aliases, which the loader refuses."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  the signature is PyYAML's
        return True


def location(place: str) -> Location:
    """Convert a dotted location such as ``aws.asr.0`` to a location of the loader."""
    return tuple(int(part) if part.isdecimal() else part for part in place.split("."))


def parse_yaml(content: str) -> Any:  # noqa: ANN401  whatever YAML can hold
    """Parse YAML with the C parser, which is eight times as fast."""
    return yaml.load(content, Loader=yaml.CSafeLoader)


def text(document: object) -> str:
    return yaml.dump(document, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True)


def edit_document(edits: Edits, base: str = BASE) -> str:
    """Return a base document's text with values replaced, added or removed."""
    document = parse_yaml(base)
    for place, value in edits.items():
        *parents, last = location(place)
        at = document
        for part in parents:
            at = at[part]
        if value is ABSENT:
            del at[last]
        elif isinstance(at, list) and last == len(at):
            at.append(copy.deepcopy(value))
        else:
            at[last] = copy.deepcopy(value)
    if any(place.startswith("images") for place in edits) and "image_signing" not in document:
        # Tests add digests to the shipped production files; signatures are tested separately.
        accepted = [*document.get("accepted_checks", ()), {"id": "images-signed", "reason": "made up by a test"}]
        document["accepted_checks"] = accepted
    return text(document)


def load_text(content: str, folder: Path) -> Deployment:
    file = folder / "deployment.yaml"
    file.write_text(content, encoding="utf-8")
    return voice_blueprint.load(file)


def load_with_edits(edits: Edits, folder: Path) -> Deployment:
    return load_text(edit_document(edits), folder)


def setting_locations(document: Any, at: Location = ()) -> Iterator[Location]:  # noqa: ANN401  whatever YAML can hold
    """Yield the location of every value in a document, containers included."""
    keys = document if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    for key in keys:
        yield (*at, key)
        yield from setting_locations(document[key], (*at, key))
