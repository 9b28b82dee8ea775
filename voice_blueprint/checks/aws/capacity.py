"""Checks on the cloud's offering: regions, zones, quotas, purchase options, engines."""

from collections import defaultdict
from collections.abc import Iterator

from voice_blueprint import catalog
from voice_blueprint.aws.fleets import Fleet, iter_fleets
from voice_blueprint.capacity.bounds import calculate_asr_host_call_bounds, find_limiting_bound
from voice_blueprint.capacity.load import calculate_units_by_fleet
from voice_blueprint.catalog import InstanceType
from voice_blueprint.checks.base import Severity, Violation, deployment_check
from voice_blueprint.file.model.aws import AsrFleet, CapacityBlock, Engine, OnDemand, Spot
from voice_blueprint.file.model.deployment import Deployment, Environment
from voice_blueprint.hosts import list_asr_images
from voice_blueprint.images import load_image_specs


@deployment_check(
    "artifacts-used",
    "In production, no ASR host downloads weights from a hub.",
    source="a host that is launched in a spike must not depend on a hub; docs/runbooks/procedures/artifacts.md",
    level=Severity.INFO,
)
def check_artifacts_used(deployment: Deployment) -> Iterator[Violation]:
    for index, fleet in enumerate(deployment.aws.asr):
        if deployment.environment is Environment.PRODUCTION and not fleet.artifacts:
            yield Violation(
                ("aws", "asr", index),
                f"each host of {fleet.name} downloads weights from a hub at its first start, and may compile the model",
                "set artifacts, deploy the stack asr, run the job of the fleet, then deploy the rest",
            )


@deployment_check(
    "instance-type-in-region",
    "Every fleet's instance type is offered in the region.",
    source="cfn-lint's region tables, made from the AWS price list (instance type rows in the catalogue)",
)
def check_instance_type_in_region(deployment: Deployment) -> Iterator[Violation]:
    region = deployment.aws.region
    for fleet in iter_fleets(deployment):
        row = fleet.instance_type
        if region not in row.regions:
            yield Violation(
                (*fleet.location, "instance_type"),
                f"{row.name} is not offered in {region}",
                f"it is offered in {', '.join(row.regions)}",
            )


@deployment_check(
    "zones-belong-to-region",
    "Every availability zone is in the region, and the deployment has every zone of a fleet.",
    source="https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-availability-zones.html",
)
def check_zones_belong_to_region(deployment: Deployment) -> Iterator[Violation]:
    aws = deployment.aws
    for index, zone in enumerate(aws.availability_zones):
        suffix = zone.removeprefix(aws.region)
        if suffix == zone or len(suffix) != 1 or not suffix.islower():
            yield Violation(
                ("aws", "availability_zones", index),
                f"{zone} is not an availability zone of {aws.region}",
                f"zones are named {aws.region}a, {aws.region}b, ...",
            )
    for number, fleet in enumerate(aws.asr):
        for index, zone in enumerate(fleet.availability_zones or ()):
            if zone not in aws.availability_zones:
                yield Violation(
                    ("aws", "asr", number, "availability_zones", index),
                    f"fleet {fleet.name} uses {zone}, where the network has no subnet",
                    f"choose among {', '.join(aws.availability_zones)}",
                )


@deployment_check(
    "capacity-block-fits",
    "A Capacity Block is bought for an instance type that supports it, in exactly one zone.",
    source="https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-using.html",
)
def check_capacity_block_fits(deployment: Deployment) -> Iterator[Violation]:
    for fleet in iter_fleets(deployment):
        if not isinstance(fleet.purchase, CapacityBlock):
            continue
        if not fleet.instance_type.capacity_blocks:
            yield Violation(
                (*fleet.location, "purchase"),
                f"{fleet.instance_type.name} is not sold in Capacity Blocks",
                "use on-demand or a capacity-reservation",
            )
        if len(fleet.zones) != 1:
            yield Violation(
                (*fleet.location, "purchase"),
                f"a Capacity Block is in one zone, but fleet {fleet.name} uses {len(fleet.zones)}",
                "set the fleet's availability_zones to the block's zone",
            )


@deployment_check(
    "warm-pool-allowed",
    "A fleet with a warm pool uses On-Demand without a reservation, which stopped hosts would lose.",
    source="https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-warm-pools.html",
)
def check_warm_pool_allowed(deployment: Deployment) -> Iterator[Violation]:
    for index, fleet in enumerate(deployment.aws.asr):
        if fleet.warm_pool and not isinstance(fleet.purchase, OnDemand):
            yield Violation(
                ("aws", "asr", index, "warm_pool"),
                f"fleet {fleet.name} uses {fleet.purchase.option} hosts, which a warm pool does not support",
                "remove warm_pool, or set purchase to on-demand",
            )


@deployment_check(
    "engine-supports-accelerator",
    "The engine of every ASR fleet supports the accelerators or CPUs of its hosts.",
    source="https://awsdocs-neuron.readthedocs-hosted.com (vLLM plugin and containers of SDK 2.33: Trn2/Trn3 only); "
    "https://github.com/aws/deep-learning-containers (0.16.0 on SDK 2.31.1 is the last for Inf2/Trn1)",
)
def check_engine_supports_accelerator(deployment: Deployment) -> Iterator[Violation]:
    for index, fleet in enumerate(deployment.aws.asr):
        row = catalog.instance_types()[fleet.instance_type]
        if row.accelerator is None:
            yield from _check_cpu_engine(fleet, row, index)
        elif fleet.engine is Engine.VLLM and row.accelerator.kind == "neuron":
            reason = (
                "the Neuron image contains only the Whisper engine"
                if row.name.startswith("trn2.")
                else "Neuron SDK 2.33 serves Trn2 and Trn3 only"
            )
            yield Violation(
                ("aws", "asr", index, "engine"),
                f"vLLM is not supported on {row.accelerator.model} ({row.name}): {reason}",
                "set engine: whisper",
            )


def _check_cpu_engine(fleet: AsrFleet, row: InstanceType, index: int) -> Iterator[Violation]:
    if fleet.engine is Engine.VLLM:
        yield Violation(
            ("aws", "asr", index, "engine"), f"vLLM is not supported on the CPUs of {row.name}", "set engine: whisper"
        )
    elif find_limiting_bound(calculate_asr_host_call_bounds(fleet)).calls == 0:
        yield Violation(
            ("aws", "asr", index, "instance_type"),
            f"{row.name} cannot serve a call: {find_limiting_bound(calculate_asr_host_call_bounds(fleet)).source}",
            "use a larger instance type or a smaller `model`, or set `measured` to a measurement",
        )


@deployment_check(
    "neuron-lifecycle",
    "No fleet uses accelerators whose software is in maintenance mode.",
    source="https://github.com/aws-neuron/aws-neuron-sdk (release notes: Inf2/Trn1 in maintenance since 2.31)",
    level=Severity.WARNING,
)
def check_neuron_lifecycle(deployment: Deployment) -> Iterator[Violation]:
    for fleet in iter_fleets(deployment):
        if fleet.instance_type.name.startswith(("inf2.", "trn1.", "trn1n.")):
            yield Violation(
                (*fleet.location, "instance_type"),
                f"{fleet.instance_type.name}: Neuron's Inf2/Trn1 software is in maintenance mode since SDK "
                "2.31 (June 2026)",
                "plan the move to trn2 or p5; until then the image pins SDK 2.31.1",
            )


@deployment_check(
    "quota-need",
    "The vCPU quotas of the deployment's instance types are known and sufficient.",
    source="https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html",
    level=Severity.INFO,
)
def check_vcpu_quotas_suffice(deployment: Deployment) -> Iterator[Violation]:
    counted: dict[str, list[Fleet]] = defaultdict(list)
    for fleet in iter_fleets(deployment):
        if not isinstance(fleet.purchase, Spot | CapacityBlock):
            counted[fleet.instance_type.quota_code].append(fleet)
    units = calculate_units_by_fleet(deployment.aws, deployment.load) if deployment.load else {}
    for code, quota_fleets in counted.items():
        low, high = (sum(counts) for counts in zip(*(fleet.vcpu_range for fleet in quota_fleets), strict=True))
        fleet_units = [(*units[fleet.name], fleet.instance_type.vcpus) for fleet in quota_fleets if fleet.name in units]
        load = ""
        if fleet_units:
            mean, peak = (sum(hosts[bound] * hosts[2] for hosts in fleet_units) for bound in (0, 1))
            load = f"; the load needs {mean}, and {peak} at its peak"
        yield Violation(
            quota_fleets[0].location,
            f"{catalog.quotas()[code].name} ({code}): {low} vCPU at the minimum, {high} at the maximum{load}",
            f"compare with the output of aws service-quotas get-service-quota --service-code ec2 --quota-code {code} "
            f"--region {deployment.aws.region}",
        )


@deployment_check(
    "vad-on-graviton",
    "VAD hosts are arm64 without accelerators.",
    source="images/vad-dataplane/image.yaml (linux/arm64 on AWS); the machine image is chosen by the accelerator",
)
def check_vad_on_graviton(deployment: Deployment) -> Iterator[Violation]:
    row = catalog.instance_types()[deployment.aws.vad.instance_type]
    if row.architecture != "arm64" or row.accelerator:
        hardware_text = f"is {row.architecture}" + (f" with {row.accelerator.model}" if row.accelerator else "")
        yield Violation(
            ("aws", "vad", "instance_type"),
            f"{row.name} {hardware_text}: the data plane runs on Graviton",
            "use a c8g type",
        )


@deployment_check(
    "images-run-on-hosts",
    "Every image is built for the architecture of the hosts that run it.",
    source="platforms of images/*/image.yaml",
)
def check_images_run_on_hosts(deployment: Deployment) -> Iterator[Violation]:
    image_specs = load_image_specs()
    for index, fleet in enumerate(deployment.aws.asr):
        row = catalog.instance_types()[fleet.instance_type]
        platform = "linux/arm64" if row.architecture == "arm64" else "linux/amd64"
        for image in list_asr_images(fleet):
            if platform not in image_specs[image].platforms:
                yield Violation(
                    ("aws", "asr", index, "instance_type"),
                    f"{image} is built for {', '.join(image_specs[image].platforms)}, and {row.name} is "
                    f"{row.architecture}",
                    "use another instance type",
                )


@deployment_check(
    "asr-has-fleets",
    "At least one fleet recognises speech.",
    source="a session without an ASR host is refused",
)
def check_asr_has_fleets(deployment: Deployment) -> Iterator[Violation]:
    if not deployment.aws.asr:
        yield Violation(("aws", "asr"), "there are 0 ASR fleets: every session would be refused", "add an ASR fleet")


MAX_SPOT_DRAIN_S = 100
"""Maximum drain time of a spot host, seconds. A spot interruption notice leaves two minutes
(userdata/voice_userdata/steps/drain.sh)."""


@deployment_check(
    "spot-drain-fits-notice",
    "A spot host drains within its interruption notice.",
    source="https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html (two minutes)",
)
def check_spot_drain_fits_notice(deployment: Deployment) -> Iterator[Violation]:
    for index, fleet in enumerate(deployment.aws.asr):
        if isinstance(fleet.purchase, Spot) and fleet.drain_timeout_s > MAX_SPOT_DRAIN_S:
            yield Violation(
                ("aws", "asr", index, "drain_timeout_s"),
                f"fleet {fleet.name} drains for {fleet.drain_timeout_s} s, but a spot interruption notice leaves "
                f"{MAX_SPOT_DRAIN_S} s",
                f"set drain_timeout_s to at most {MAX_SPOT_DRAIN_S}, or accept this check: longer calls then move to "
                "another host",
            )


@deployment_check(
    "warm-pool-in-fleet",
    "A warm pool is no larger than its fleet.",
    source="https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-warm-pools.html",
)
def check_warm_pool_in_fleet(deployment: Deployment) -> Iterator[Violation]:
    for index, fleet in enumerate(deployment.aws.asr):
        max_size = fleet.hosts.max - fleet.hosts.min
        if fleet.warm_pool and fleet.warm_pool.size > max_size:
            yield Violation(
                ("aws", "asr", index, "warm_pool", "size"),
                f"the warm pool of fleet {fleet.name} has {fleet.warm_pool.size} hosts, but the fleet can grow by "
                f"only {max_size}",
                f"set size to at most {max_size}" if max_size else "remove warm_pool",
            )
