"""From a service of the deployment file to its replicas."""

from collections.abc import Sequence
from typing import assert_never

import pulumi

from blueprint.file.model.azure import AggregatedService, AzureService, ChatService, PrefillDecodeCell, TtsService
from voice_constructs.azure.kubernetes.cell import PrefillDecodeCells
from voice_constructs.azure.kubernetes.context import ClusterContext
from voice_constructs.azure.kubernetes.engine_replicas import EngineReplicas
from voice_constructs.azure.kubernetes.scaling import Scaling
from voice_constructs.azure.kubernetes.services import AggregatedReplicas, ChatReplicas, TtsReplicas


def make_replicas(
    service: AzureService,
    *,
    context: ClusterContext,
    scaling: Scaling,
    needs: Sequence[pulumi.Resource],
    opts: pulumi.ResourceOptions,
) -> list[EngineReplicas]:
    """Make the replicas of one service: one set, or for a chat service one on each of its pools."""
    match service:
        case PrefillDecodeCell():
            return [PrefillDecodeCells(context=context, scaling=scaling, service=service, needs=needs, opts=opts)]
        case AggregatedService():
            return [AggregatedReplicas(context=context, scaling=scaling, service=service, needs=needs, opts=opts)]
        case ChatService():
            return [
                ChatReplicas(context=context, scaling=scaling, service=service, pool=pool, needs=needs, opts=opts)
                for pool in service.pools
            ]
        case TtsService():
            return [TtsReplicas(context=context, scaling=scaling, service=service, needs=needs, opts=opts)]
    assert_never(service)
