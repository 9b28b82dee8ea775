"""Other values of settings whose type does not determine one, and settings without an effect on templates."""

from collections.abc import Mapping
from typing import NamedTuple

from tests.blueprint.documents import ABSENT, Edits
from tests.settings.settings import Key

EXPLICIT_VALUES: Mapping[str, object] = {
    "Deployment.name": "zq-name",
    "Aws.region": "eu-west-1",
    "Aws.account": "999999999999",
    "Network.cidr": "10.99.0.0/16",
    "Network.interface_endpoints": ["monitoring"],
    "VadFleet.machine_image": "/zq/vad:2",
    "AsrFleet.machine_image": "ami-aaaaaaaa",
    "ScalingRule.name": "zq",
    "AsrFleet.name": "zq-fleet",
    "AsrFleet.model": "zq/whisper",
    "AsrFleet.revision": "f" * 40,
    "StateStore.restore_from": "zq-snapshot",
    "VllmOptions.revision": "a" * 40,
    "CapacityBlock.reservation_id": "cr-aaaaaaaa",
    "CapacityReservation.reservation_id": "cr-bbbbbbbb",
    "JwtAuthorizer.issuer": "https://zq.callers.dev/",
    "JwtAuthorizer.audience": "zq-audience",
    "Domain.name": "zq.callers.dev",
    "Domain.zone_id": "ZQ",
    "Edge.trace_collector": "https://zq.collector.dev/v1/traces",
    "Edge.allowed_origins": ["https://zq.page.dev"],
    "AzureEdge.trace_collector": "https://zq.azure-collector.dev/v1/traces",
    "AzureEdge.allowed_origins": ["https://zq.azure-page.dev"],
    "AzureDomain.name": "zq.azure-callers.dev",
    "VaultCertificate.vault_id": "/subscriptions/99999999-9999-4999-8999-999999999999/resourceGroups/g/"
    "providers/Microsoft.KeyVault/vaults/zq-vault",
    "VaultCertificate.name": "zq-certificate",
    "AwsAgents.prompt": "zq-prompt",
    "AwsAgents.voice": "zq-voice",
    "AwsAgents.language": "zq",
    "AwsAgents.tools_url": "https://zq.tools.dev",
    "AwsAgents.tools_key_secret": "zq-tools-key",
    "Twilio.account": f"AC{'9' * 32}",
    "Twilio.token_secret": "zq-twilio-token",
    "Observability.email": "zq@callers.dev",
    "Observability.chat_webhook_secret": "zq/chat",
    "Observability.runbook_url": "https://zq.dev/runbooks",
    "AzureObservability.email": "zq@azure.dev",
    "AzureObservability.runbook_url": "https://zq.azure.dev/runbooks",
    "Azure.location": "westeurope",
    "Azure.kubernetes_version": "1.35",
    "Azure.hub_token_secret": "zq-token",
    "Azure.admin_groups": ["99999999-2222-3333-4444-555555555555"],
    "ClusterNetwork.cidr": "10.96.0.0/16",
    "ClusterNetwork.pod_cidr": "10.97.0.0/16",
    "ClusterNetwork.service_cidr": "10.98.0.0/16",
    "PublicApiServer.authorized_ranges": ["198.51.100.0/24"],
    "GpuPool.name": "zqpool",
    "ReservedNodes.group_id": "/subscriptions/99999999-9999-4999-8999-999999999999/resourceGroups/g/"
    "providers/Microsoft.Compute/"
    "capacityReservationGroups/one",
    "PrefillDecodeCell.name": "zq-cell",
    "PrefillDecodeCell.revision": "b" * 40,
    "AggregatedService.name": "zq-pair",
    "AggregatedService.revision": "c" * 40,
    "TtsService.name": "zq-speech",
    "TtsService.revision": "d" * 40,
    "ChatService.name": "zq-chat",
    "ChatService.revision": "e" * 40,
    "MaintenanceWindow.start": "03:07",
    "AgentPods.prompt": "zq-prompt",
    "AgentPods.voice": "zq-voice",
    "AgentPods.tools_url": "https://zq.tools.dev/v1",
    "AgentPods.tools_key_secret": "zq-tools-key",
    "ExternalEndpoint.url": "https://zq.engines.dev/v1",
    "ExternalEndpoint.model": "zq-model",
    "ExternalEndpoint.key_secret": "zq-engine-key",
}
"""Other values that templates contain literally, so that one run can change all of them."""

OTHER_VALUES: Mapping[str, object] = {
    "ObjectiveSettings.admitted_percent": 99.0,
    "Edge.traced_share": 0.25,
    "AzureEdge.traced_share": 0.75,
    "AgentPods.language": "de",
    "StateStore.node_type": "cache.r7g.xlarge",
    "VadFleet.instance_type": "c8g.24xlarge",
    "DataPath.mtu": 1500,
    "AsrFleet.instance_type": "p5.48xlarge",
    "AsrFleet.availability_zones": ["us-east-1b"],
    "ScalingRule.metric": "CpuBusy",
    "ScalingRule.period_s": 30,
    "VllmOptions.model": "qwen2.5-7b-instruct",
    "Azure.availability_zones": ["1", "3"],
    "GpuPool.availability_zones": ["2"],
    "GpuPool.vm_size": "Standard_NC48ads_A100_v4",
    "CpuPool.vm_size": "Standard_D4ds_v5",
    "SystemPool.vm_size": "Standard_D4ds_v5",
    "PrefillDecodeCell.model": "qwen3-8b",
    "AggregatedService.model": "qwen3-8b",
    "ChatService.model": "qwen2.5-7b-instruct",
    "PrefillDecodeCell.pool": "cells2",
    "AggregatedService.pool": "pairs2",
    "TtsService.pool": "voice2",
    "PoolReplicas.pool": "pairs2",
    "AggregatedService.tensor_parallel": 1,
    "Rollout.checkpoint_percentages": [20],
    "Load.sessions": 120,
    "Load.session_tokens": 3000,
    "Load.context_tokens": 8192,
}
"""Other values of settings whose type does not determine a valid one, or where rounding hides a difference of one."""

AWS: Key = ("Deployment.aws",)
AZURE: Key = ("Deployment.azure",)
GROUP = "/subscriptions/99999999-9999-4999-8999-999999999999/resourceGroups/hub/providers"
NETWORK = f"{GROUP}/Microsoft.Network/virtualNetworks"
LOAD = {"sessions": 20, "session_tokens": 1500, "context_tokens": 16384}

COMBINED_EDITS: Mapping[Key, Edits] = {
    (*AWS, "Aws.asr", "AsrFleet.purchase", "option"): {"aws.asr.1.purchase": {"option": "spot"}},
    (*AWS, "Aws.asr", "AsrFleet.engine"): {
        "aws.asr.1.engine": "vllm",
        "aws.asr.1.vllm": {"model": "qwen3-8b", "load": LOAD},
    },
    (*AWS, "Aws.edge", "Edge.authorizer", "kind"): {"aws.edge.authorizer": {"kind": "none"}},
    (*AZURE, "Azure.callers", "Callers.edge", "AzureEdge.authorizer", "kind"): {
        "azure.callers.edge.authorizer": {"kind": "none"},
    },
    (*AZURE, "Azure.pools", "GpuPool.purchase", "option"): {"azure.pools.0.purchase": {"option": "spot"}},
    (*AZURE, "Azure.services", "kind"): {
        "azure.services.0": {"kind": "aggregated", "name": "either", "model": "qwen3-8b", "pool": "pairs",
                             "replicas": {"min": 1, "max": 3}, "load": LOAD},
    },
}  # fmt: skip
"""Edits that are valid only in combination."""

SIGNING = {
    "public_key": "-----BEGIN PUBLIC KEY-----\n"
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEvLWaOCnv0yhZQeb1GqRjF92T2Cpa\n"
    "csE6Zfahqgo1miHHNTOEN50LXjNw2/bdY3E4iPs7Q2R1SbRGeXFpwzDHpA==\n"
    "-----END PUBLIC KEY-----\n",
    "signature": "MEQC",
}

SEPARATE_EDITS: Mapping[Key, Edits] = {
    (*AWS, "Aws.agents", "AwsAgents.prompt_secret"): {
        "aws.agents.prompt": ABSENT,
        "aws.agents.prompt_secret": "zq-prompt",
    },
    **{
        (*AWS, "Aws.agents", f"AwsAgents.{role}", f"Endpoint.{name}"): {f"aws.agents.{role}.{name}": value}
        for role in ("chat", "speech")
        for name, value in (("url", "https://zq.dev/v1"), ("model", "zq"), ("key_secret", "zq-key"))
    },
    ("Deployment.image_signing", "ImageSigning.public_key"): {"image_signing": SIGNING},
    ("Deployment.cells", "Cells.number"): {"cells.number": 1},
    (*AWS, "Aws.availability_zones"): {"aws.availability_zones": ["us-east-1a", "us-east-1c"]},
    (*AWS, "Aws.vad", "VadFleet.ena_express", "EnaExpress.enabled"): {"aws.vad.ena_express": {}},
    (*AWS, "Aws.edge", "Edge.gateway", "GatewayService.sockets_per_task"): {"aws.edge.gateway.sockets_per_task": 80},
    (*AZURE, "Azure.callers", "Callers.edge", "AzureEdge.gateway", "GatewayPods.sockets_per_pod"): {
        "azure.callers.edge.gateway.sockets_per_pod": 80
    },
    **{
        (*AZURE, "Azure.agents", f"AgentPods.{role}", setting): {
            f"azure.agents.{role}": {"kind": "service", "service": role}
        }
        for role in ("chat", "speech")
        for setting in ("kind", "ClusterService.service")
    },
    (*AZURE, "Azure.agents", "AgentPods.prompt_secret"): {
        "azure.agents.prompt": ABSENT,
        "azure.agents.prompt_secret": "house-prompt",
    },
    (*AZURE, "Azure.callers", "Callers.asr", "AsrPods.model"): {
        "azure.callers.asr.model": "qwen3-8b",
        "azure.services.3.model": "qwen3-8b",
    },
    (*AZURE, "Azure.services", "ChatService.pools"): {"azure.services.5.pools": ["pairs"]},
    **{
        # Callers need a network that the deployment creates.
        (*AZURE, "Azure.access", setting): {
            "azure.access": access,
            **({"azure.callers": ABSENT, "azure.agents": ABSENT} if setting.startswith("ExistingNetwork") else {}),
        }
        for setting, access in (
            ("kind", {"kind": "jump-host"}),
            ("JumpHost.vm_size", {"kind": "jump-host", "vm_size": "Standard_D8ds_v5"}),
            ("PeeredNetwork.network_id", {"kind": "peering", "network_id": f"{NETWORK}/hub"}),
            (
                "PeeredNetwork.through_gateway",
                {"kind": "peering", "network_id": f"{NETWORK}/hub", "through_gateway": True},
            ),
            *(
                (
                    f"ExistingNetwork.{name}",
                    {
                        "kind": "existing-network",
                        "egress": "route-table",
                        "nodes_subnet_id": f"{NETWORK}/ours/subnets/nodes",
                        "endpoints_subnet_id": f"{NETWORK}/ours/subnets/endpoints",
                    },
                )
                for name in ("nodes_subnet_id", "endpoints_subnet_id", "egress")
            ),
        )
    },
    **{
        (*AZURE, "Azure.existing", f"ExistingResources.{name}"): {"azure.existing": {name: value}}
        for name, value in (
            ("registry_id", f"{GROUP}/Microsoft.ContainerRegistry/registries/ourregistry"),
            ("log_workspace_id", f"{GROUP}/Microsoft.OperationalInsights/workspaces/ours"),
            ("private_dns_zones", [f"{GROUP}/Microsoft.Network/privateDnsZones/privatelink.azurecr.io"]),
        )
    },
    **{
        (*AWS, *fleet, "ScalingRule.comparison"): {
            f"{place}.comparison": "below",
            f"{place}.steps": [{"adjustment": 1}],
        }
        for fleet, place in (
            (("Aws.vad", "VadFleet.scaling"), "aws.vad.scaling.1"),
            (("Aws.asr", "AsrFleet.scaling"), "aws.asr.4.scaling.1"),
        )
    },
    (*AWS, "Aws.edge", "Edge.certificate_arn"): {
        "aws.edge.domain": ABSENT,
        "aws.edge.certificate_arn": "arn:aws:acm:us-east-1:123456789012:certificate/zq",
    },
}
"""Edits that would hide the effect of others, and are rendered separately."""


class Unseen(NamedTuple):
    """A check that reads a setting outside the templates, and an edit that changes its findings."""

    by: str
    edits: Edits


CHECKED_ONLY: Mapping[str, Unseen] = {
    "ImageSigning.signature": Unseen("is it the key's own?", {"image_signing": SIGNING}),
    "AcceptedCheck.id": Unseen("which finding is accepted", {"accepted_checks.0.id": "spot-holds-no-minimum"}),
    "AcceptedCheck.reason": Unseen("is said with the finding", {"accepted_checks.0.reason": "for another reason"}),
    "Domain.zone_name": Unseen("is it ours?", {"aws.edge.domain": {"name": "a.example.com", "zone_id": "Z0",
                                                                  "zone_name": "example.com"}}),
    "AwsAgents.commercial": Unseen("licences of voices", {"aws.agents.speech.model": "voxtral-4b-tts"}),
    "AwsAgents.model_agreements.ModelAgreement.model": Unseen(
        "licences of voices",
        {"aws.agents.speech.model": "voxtral-4b-tts", "aws.agents.model_agreements.0.model": "whisper-large-v3"},
    ),
    "Azure.commercial": Unseen("licences of models", {"azure.commercial": False}),
    "ModelAgreement.model": Unseen("licences of models", {"azure.model_agreements.0.model": "voxtral-4b-tts"}),
    "PrefillDecodeCell.load.Load.sessions": Unseen("load-fits", {"azure.services.1.load.sessions": 10**6}),
    "AggregatedService.load.Load.sessions": Unseen("load-fits", {"azure.services.3.load.sessions": 10**6}),
    "ChatService.load.Load.sessions": Unseen("load-fits", {"azure.services.5.load.sessions": 10**6}),
    "CallLoad.calls": Unseen("load-fits-tiers", {"load.calls": 10**6, "cells.calls": 10**6}),
    "Cells.calls": Unseen("load-fits-tiers", {"load.calls": 10**6, "cells": {"calls": 10**6}}),
    "CallLoad.conversation_share": Unseen("load-fits-agents", {"load.conversation_share": 0.01}),
    "CallLoad.curve": Unseen("day-fits-load", {"load.curve": "none.csv"}),
    "CallLoad.peak_factor": Unseen("load-fits-tiers", {"load.peak_factor": 1000}),
    **{
        f"{kind}.load.Load.longest_call_s": Unseen(
            "a call fits its session",
            {f"azure.services.{index}.model": "voxtral-mini-4b-realtime",
             f"azure.services.{index}.load.longest_call_s": 10**6},
        )
        for kind, index in (("PrefillDecodeCell", 1), ("AggregatedService", 3), ("ChatService", 5))
    },
    "VllmOptions.load.Load.longest_call_s": Unseen(
        "a call fits its session",
        {"aws.asr.1.engine": "vllm",
         "aws.asr.1.vllm": {"model": "voxtral-mini-4b-realtime", "load": {**LOAD, "longest_call_s": 10**6}}},
    ),
    "TtsService.sessions": Unseen("load-fits", {"azure.services.4.sessions": 10**6}),
}  # fmt: skip
"""Settings outside the templates that checks read."""

INFORMATIONAL: Mapping[str, str] = {
    "ModelAgreement.reference": "for the file's reader: where the agreement lies",
    "CallLoad.minutes_each": "`voice cost` prices calls",
    "Cells.per_account": "`voice plan` counts accounts and quotas by it",
    "CallLoad.speech_share": "`voice cost` prices traffic",
    "MeasuredCapacity.date": "for the file's reader: `voice plan` shows it",
    "MeasuredCapacity.conditions": "for the file's reader: `voice plan` shows it",
    "TtsService.model": "the catalogue has one model of speech: there is no other value",
}
"""Settings without any effect."""
