"""Checks on VAD hosts: memory, receive path, ENA Express."""

import math
from collections.abc import Iterator

from voice_blueprint import catalog, huge_pages
from voice_blueprint.aws.fleets import iter_fleets
from voice_blueprint.capacity.bounds import calculate_vad_host_call_bounds, find_limiting_bound
from voice_blueprint.catalog import InstanceType
from voice_blueprint.checks.base import Severity, Violation, deployment_check
from voice_blueprint.contract.chunk import CHUNK_DATAGRAM_BYTES
from voice_blueprint.contract.network import ENA_EXPRESS_MTU, XDP_MTU, Tier
from voice_blueprint.file.model.aws import DataPathMode
from voice_blueprint.file.model.deployment import Deployment

_ENA_EXPRESS_DOCS = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ena-express.html"
_ENA_XDP_DOCS = "https://github.com/amzn/amzn-drivers/tree/master/kernel/linux/ena (README, XDP)"

MAX_HUGE_PAGE_FRACTION = 0.80
"""Maximum share of a host's memory for huge pages. The kernel, containers and packet buffers need the rest."""

MAX_HUGE_PAGE_RATIO = 2
"""Ratio of reserved to used huge pages above which a warning is reported."""

RX_RING_SIZE_LIMITS = (256, 16384)


def _get_vad_instance_type(deployment: Deployment) -> InstanceType:
    return catalog.instance_types()[deployment.aws.vad.instance_type]


@deployment_check(
    "huge-pages-fit-memory",
    f"Huge pages use at most {MAX_HUGE_PAGE_FRACTION:.0%} of the VAD host's memory.",
    source="https://www.kernel.org/doc/html/latest/admin-guide/mm/hugetlbpage.html; EC2 instance type memory",
)
def check_huge_pages_fit_memory(deployment: Deployment) -> Iterator[Violation]:
    pages = deployment.aws.vad.huge_pages
    host = _get_vad_instance_type(deployment)
    reserved_gib = pages.count * pages.size_mib / 1024
    limit_gib = MAX_HUGE_PAGE_FRACTION * host.memory_gib
    if reserved_gib > limit_gib:
        max_pages = int(limit_gib * 1024 // pages.size_mib)
        family = host.name.split(".")[0]
        larger_types = [
            row.name
            for row in sorted(catalog.instance_types().values(), key=lambda row: row.memory_gib)
            if row.name.split(".")[0] == family and MAX_HUGE_PAGE_FRACTION * row.memory_gib >= reserved_gib
        ]
        yield Violation(
            ("aws", "vad", "huge_pages", "count"),
            f"{pages.count} huge pages x {pages.size_mib} MiB = {reserved_gib:g} GiB > "
            f"{host.memory_gib:g} GiB of {host.name} x {MAX_HUGE_PAGE_FRACTION:.0%} = {limit_gib:g} GiB",
            f"set count to at most {max_pages}" + (f", or use {larger_types[0]} or larger" if larger_types else ""),
        )


@deployment_check(
    "huge-pages-used",
    f"The VAD host reserves at least the huge pages that its data plane uses, and at most {MAX_HUGE_PAGE_RATIO} times "
    "as many.",
    source="voice_blueprint/huge_pages.py, compared with the program in images/vad-dataplane/tests/e2e/test_docker.py",
    level=Severity.WARNING,
)
def check_huge_pages_used(deployment: Deployment) -> Iterator[Violation]:
    vad = deployment.aws.vad
    pages, queues, sessions = (
        vad.huge_pages,
        vad.data_path.rx_queues,
        find_limiting_bound(calculate_vad_host_call_bounds(vad)).calls,
    )
    required_pages = huge_pages.calculate_huge_page_count(sessions, queues, pages.size_mib)
    usage_text = f"{required_pages} that {sessions:,} sessions on {queues} receive queues use"
    size = f"{pages.count} huge pages of {pages.size_mib} MiB"
    if pages.count < required_pages:
        yield Violation(
            ("aws", "vad", "huge_pages", "count"),
            f"{size} < {usage_text}: the data plane uses ordinary pages for the rest, or does not start",
            f"set count to {required_pages}",
        )
    elif pages.count > MAX_HUGE_PAGE_RATIO * required_pages:
        wasted_gib = (pages.count - required_pages) * pages.size_mib / 1024
        yield Violation(
            ("aws", "vad", "huge_pages", "count"),
            f"{size} > {MAX_HUGE_PAGE_RATIO} x the {usage_text}: {wasted_gib:.1f} GiB of memory would be reserved but "
            "unused",
            f"set count to {required_pages}",
        )


@deployment_check(
    "ena-express-supported", "The VAD instance type supports ENA Express if it is enabled.", source=_ENA_EXPRESS_DOCS
)
def check_ena_express_supported(deployment: Deployment) -> Iterator[Violation]:
    host = _get_vad_instance_type(deployment)
    if deployment.aws.vad.ena_express.enabled and not host.ena_express:
        family = host.name.split(".")[0]
        capable_type = min(
            (r for r in catalog.instance_types().values() if r.name.startswith(f"{family}.") and r.ena_express),
            key=lambda row: row.vcpus,
            default=None,
        )
        yield Violation(
            ("aws", "vad", "ena_express"),
            f"ENA Express is not supported on {host.name} ({host.vcpus} vCPU)",
            "set enabled: false"
            + (f", or use {capable_type.name} ({capable_type.vcpus} vCPU) or larger" if capable_type else ""),
        )


@deployment_check(
    "ena-express-disputed",
    "The pages of AWS agree that the VAD instance type supports ENA Express.",
    source=_ENA_EXPRESS_DOCS + "; https://docs.aws.amazon.com/ec2/latest/instancetypes/co.html",
    level=Severity.WARNING,
)
def check_ena_express_docs_agree(deployment: Deployment) -> Iterator[Violation]:
    host = _get_vad_instance_type(deployment)
    if deployment.aws.vad.ena_express.enabled and host.ena_express and host.ena_express_note:
        yield Violation(
            ("aws", "vad", "ena_express"),
            f"the sources on ENA Express on {host.name} contradict each other: {host.ena_express_note}",
            "check NetworkInfo.EnaSrdSupported of the type with DescribeInstanceTypes, or use a size that both pages "
            "list",
        )


@deployment_check(
    "ena-express-peers-supported",
    "Every ASR fleet that receives chunks supports ENA Express if the VAD fleet enables it.",
    source=_ENA_EXPRESS_DOCS,
)
def check_ena_express_peers_supported(deployment: Deployment) -> Iterator[Violation]:
    if not deployment.aws.vad.ena_express.enabled:
        return
    for fleet in iter_fleets(deployment):
        if fleet.tier is Tier.ASR and not fleet.instance_type.ena_express:
            kind = fleet.instance_type.name
            yield Violation(
                (*fleet.location, "instance_type"),
                f"ENA Express is not supported on {kind}: traffic from {_get_vad_instance_type(deployment).name} "
                "silently falls back to ENA (both ends must support ENA Express)",
                "set aws.vad.ena_express.enabled: false; p5 is the only ASR type that supports it",
            )


@deployment_check(
    "ena-express-hops",
    "ENA Express is known to apply only between hosts, not to traffic from the load balancer.",
    source=_ENA_EXPRESS_DOCS,
    level=Severity.INFO,
)
def check_ena_express_hops(deployment: Deployment) -> Iterator[Violation]:
    express = deployment.aws.vad.ena_express
    if express.enabled:
        yield Violation(
            ("aws", "vad", "ena_express"),
            f"ENA Express on {_get_vad_instance_type(deployment).name} only applies between hosts; packets from the "
            "load balancer never use it, and it adds tens of microseconds of median latency to light traffic",
            "measure with and without it: compare ena_srd_tx_pkts with ena_srd_eligible_tx_pkts in ethtool -S",
        )


@deployment_check(
    "ena-express-mtu",
    f"The MTU is at most {ENA_EXPRESS_MTU} with ENA Express.",
    source="https://github.com/amzn/amzn-ec2-ena-utilities/tree/main/ena-express",
)
def check_ena_express_mtu(deployment: Deployment) -> Iterator[Violation]:
    vad = deployment.aws.vad
    if vad.ena_express.enabled and vad.data_path.mtu > ENA_EXPRESS_MTU:
        yield Violation(
            ("aws", "vad", "data_path", "mtu"),
            f"MTU {vad.data_path.mtu} > {ENA_EXPRESS_MTU}, the limit of ENA Express",
            f"set mtu to at most {ENA_EXPRESS_MTU}",
        )


@deployment_check(
    "xdp-mtu",
    f"The MTU is at most {XDP_MTU} on the af_xdp data path.",
    source=_ENA_XDP_DOCS + "; https://github.com/amzn/amzn-drivers/issues/221",
)
def check_xdp_mtu(deployment: Deployment) -> Iterator[Violation]:
    path = deployment.aws.vad.data_path
    if path.mode is DataPathMode.AF_XDP and path.mtu > XDP_MTU:
        yield Violation(
            ("aws", "vad", "data_path", "mtu"),
            f"MTU {path.mtu} > {XDP_MTU}: the XDP program could not be attached",
            f"set mtu to at most {XDP_MTU}, or mode: vfio with a machine_image that was baked for it",
        )


@deployment_check(
    "chunk-fits-mtu",
    f"One AudioChunk datagram ({CHUNK_DATAGRAM_BYTES} bytes) fits the MTU without fragmentation.",
    source="voice_blueprint/contract/ (AudioChunk); RFC 8900, IP fragmentation considered fragile",
)
def check_chunk_fits_mtu(deployment: Deployment) -> Iterator[Violation]:
    mtu = deployment.aws.vad.data_path.mtu
    if mtu < CHUNK_DATAGRAM_BYTES:
        yield Violation(
            ("aws", "vad", "data_path", "mtu"),
            f"MTU {mtu} < {CHUNK_DATAGRAM_BYTES} bytes of one AudioChunk datagram: every chunk to the ASR tier would "
            "be fragmented",
            f"set mtu between {CHUNK_DATAGRAM_BYTES} and {XDP_MTU}",
        )


@deployment_check(
    "rx-ring-size",
    f"The receive ring is a power of two from {RX_RING_SIZE_LIMITS[0]} to {RX_RING_SIZE_LIMITS[1]}.",
    source="https://docs.kernel.org/networking/af_xdp.html; amzn-drivers ENA README (rings 256-16K)",
)
def check_rx_ring_size(deployment: Deployment) -> Iterator[Violation]:
    size = deployment.aws.vad.data_path.rx_ring_size
    low, high = RX_RING_SIZE_LIMITS
    if size & (size - 1) or not low <= size <= high:
        nearest_size = min(max(1 << size.bit_length(), low), high)
        yield Violation(
            ("aws", "vad", "data_path", "rx_ring_size"),
            f"the receive ring {size} is not a power of two from {low} to {high}",
            f"use {nearest_size}",
        )


@deployment_check(
    "rx-queues-fit",
    "The polled receive queues fit the interface's queues, and leave two cores, or half of them, for other processes.",
    source="https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ena-queues.html; " + _ENA_XDP_DOCS,
)
def check_rx_queues_fit(deployment: Deployment) -> Iterator[Violation]:
    host = _get_vad_instance_type(deployment)
    queues = deployment.aws.vad.data_path.rx_queues
    # The in-tree ENA driver reserves half of the queues for XDP transmission.
    usable_queues = {DataPathMode.AF_XDP: max(host.network_queues // 2, 1), DataPathMode.VFIO: host.network_queues}
    mode = deployment.aws.vad.data_path.mode
    free = min(2, math.ceil(host.vcpus / 2))
    limit = min(usable_queues[mode], host.vcpus - free)
    if queues > limit:
        yield Violation(
            ("aws", "vad", "data_path", "rx_queues"),
            f"{queues} receive queues > {limit}: {host.name} has {host.network_queues} queues per interface, "
            f"{usable_queues[mode]} of them usable with {mode}, and {host.vcpus} vCPU, {free} of which stay free",
            f"set rx_queues to at most {limit}, or use a larger instance type"
            if limit > 0
            else "use an instance type with 2 vCPU or more",
        )
