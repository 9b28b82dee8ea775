"""Rendering of typed values into the bash script that a host receives as user data."""

import base64
import bz2
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from typing import Literal

from voice_userdata.values import (
    AfXdpDataPath,
    CommandReadinessCheck,
    Container,
    HostImageConfig,
    HostUserDataConfig,
    PortReadinessCheck,
    PreparationJob,
    VfioDataPath,
)

MAX_USER_DATA_BYTES = 16_384
"""EC2's maximum size of user data, before base64 encoding.
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-add-user-data.html"""
MAX_TOKEN_BYTES = 160
"""Maximum length of a resolved CDK token: the ARN of a secret or target group with names of 64 characters and the
longest partition and region. The token itself has about 20 bytes."""
_CDK_TOKEN_PATTERN = re.compile(r"\$\{Token\[[^\]]*\]\}")
_UNPACK_COMMAND_TEMPLATE = (
    "BODIES=$(python3 -c 'import base64, bz2, sys; "
    'sys.stdout.write(bz2.decompress(base64.b64decode(sys.argv[1])).decode())\' {})\neval "$BODIES"'
)
"""Command that unpacks the step files. bzip2's format and output have not changed since 2000, whereas gzip's output
differs between builds of zlib. If user data depended on the deploying machine, it could replace all hosts."""
_PACKED_BODY_PATTERN = re.compile(r"""BODIES=\$\(python3 -c '[^']*' (\S+)\)\neval "\$BODIES\"""")

HOST_IAM_ACTIONS = (
    "autoscaling:CompleteLifecycleAction",
    "autoscaling:RecordLifecycleActionHeartbeat",
    "autoscaling:SetInstanceHealth",
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:GetAuthorizationToken",
    "ecr:GetDownloadUrlForLayer",
    "elasticloadbalancing:DeregisterTargets",
    "elasticloadbalancing:RegisterTargets",
    "logs:CreateLogStream",
    "logs:PutLogEvents",
    "secretsmanager:GetSecretValue",
    "ssm:GetParameter",
)
"""Permissions of a host's role, in addition to those of its containers. Only VFIO requires the load balancer
actions."""

_INITIAL_STEPS = ("lib", "need")
_FILES_WITHOUT_STEP = {"lib", "need", "signature", "cold_start", "lifecycle", "drain", "every_boot"}
_FINAL_STEPS = ("runtime", "images", "state_secret", "containers", "lifecycle", "drain", "every_boot")


def render_user_data(boot: HostUserDataConfig) -> str:
    """Render the user data for a fleet's hosts.

    The script starts with the values as quoted assignments, so that CDK tokens in them reach CloudFormation unchanged.
    The compressed bodies of the required step files follow. Comments and indentation are removed from these bodies, so
    strings in step files must not depend on indentation or lines that start with ``#``.

    Raises:
        ValueError: A value spans several lines, or the script exceeds EC2's limit.
    """
    bodies = "\n".join(_read_step(step) for step in _list_step_files(boot))
    packed = base64.b64encode(bz2.compress(bodies.encode())).decode()
    parts = [
        "#!/bin/bash",
        "set -Eeuo pipefail",
        *_format_value_assignments(boot),
        _UNPACK_COMMAND_TEMPLATE.format(packed),
        'main "$@"',
    ]
    return _check_user_data_size("\n".join(parts) + "\n", boot.fleet)


def unpack_script(script: str) -> str:
    """Return a script with its steps as plain text, for people and tools. The result may exceed EC2's limit."""
    return _PACKED_BODY_PATTERN.sub(lambda found: bz2.decompress(base64.b64decode(found[1])).decode(), script)


def calculate_max_deployed_bytes(script: str) -> int:
    """Return the maximum size of a script after CloudFormation has resolved the CDK's tokens."""
    return len(_CDK_TOKEN_PATTERN.sub("x" * MAX_TOKEN_BYTES, script).encode())


def render_bake_script(bake: HostImageConfig, function: Literal["bake", "check"]) -> str:
    """Render the script that EC2 Image Builder runs on the build machine for a host image.

    Image Builder first runs the function ``bake``, then ``check``.
    """
    pages = bake.huge_pages
    values = {
        "REGION": bake.region,
        "PAGE_SIZE_MIB": pages.size_mib if pages else None,
        "PAGE_COUNT": pages.count if pages else None,
        "VFIO_DRIVERS": bake.vfio_drivers,
        "SIGNING_KEY": bake.signing_key,
    }
    steps = [
        "lib",
        "need",
        "runtime",
        *_list_signature_steps(bake),
        "images",
        *(["huge_pages"] if pages else []),
        "bake",
    ]
    parts = [
        "set -Eeuo pipefail",
        *(f"{name}={_quote(str(value))}" for name, value in values.items() if value is not None),
        _format_bash_array("CONTAINERS", list(bake.images)),
        f"declare -A IMAGE=({' '.join(f'[{name}]={_quote(uri)}' for name, uri in bake.images.items())})",
        *(_read_step(step) for step in steps),
        f"main {function}",
    ]
    return "\n".join(parts) + "\n"


def render_preparation_script(job: PreparationJob) -> str:
    """Render the user data for the host that creates a fleet's artifacts.

    Raises:
        ValueError: A value spans several lines, except in the command, or the script exceeds EC2's limit.
    """
    name, uri = job.image
    disks = ["instance_store"] if job.instance_store_mount else []
    steps = [*disks, *([job.accelerator] if job.accelerator else []), "runtime", "images", "prepare"]
    bodies = ["lib", "need", *_list_signature_steps(job), *steps]
    values = {
        "REGION": job.region,
        "ARTIFACTS": job.artifacts.source,
        "ARTIFACTS_DIR": job.artifacts.directory,
        "ARTIFACTS_USER": job.artifacts.user_id,
        "MOUNTED_AT": job.cache_mount_path,
        "INSTANCE_STORE": job.instance_store_mount,
        "GPUS": "yes" if job.accelerator == "gpu" else None,
        "SHARED_MEMORY_MIB": job.shared_memory_mib,
        "SIGNING_KEY": job.signing_key,
    }
    parts = [
        "#!/bin/bash",
        "set -Eeuo pipefail",
        *(f"{name}={_quote(str(value))}" for name, value in values.items() if value is not None),
        _format_bash_array("STEPS", ["need aws awscli-2", *(["need mkfs.xfs xfsprogs"] if disks else []), *steps]),
        _format_bash_array("DEVICES", []),
        _format_bash_array("CONTAINERS", [name]),
        # Bash passes the command to Docker directly instead of through a file, so it may contain line breaks.
        f"COMMAND=({shlex.join(job.command)})",
        f"ENVIRONMENT={_quote_lines(_format_variables(job.environment))}",
        f"declare -A IMAGE=([{name}]={_quote(uri)})",
        *(_read_step(step) for step in bodies),
        "main",
    ]
    return _check_user_data_size("\n".join(parts) + "\n", f"the artifacts job of {name}")


def _list_step_files(boot: HostUserDataConfig) -> list[str]:
    """Return the names of the step files, in the order in which they run.

    The AF_XDP step creates the queues that the ENA Express step tunes. The VFIO step changes the interface that
    containers use.
    """
    optional = (
        ("huge_pages", boot.huge_pages),
        ("mtu", boot.mtu),
        ("af_xdp", isinstance(boot.data_path, AfXdpDataPath)),
        ("ena_express", boot.ena_express),
        ("vfio", isinstance(boot.data_path, VfioDataPath)),
        ("instance_store", boot.instance_store_mount),
        ("neuron", boot.accelerator == "neuron"),
        ("gpu", boot.accelerator == "gpu"),
        ("artifacts", boot.artifacts),
        ("cold_start", boot.timed_container),
        ("signature", boot.signing_key),
    )
    return [*_INITIAL_STEPS, *(name for name, enabled in optional if enabled), *_FINAL_STEPS]


def _list_signature_steps(job: HostImageConfig | PreparationJob) -> list[str]:
    return ["signature"] if job.signing_key else []


def _list_boot_steps(boot: HostUserDataConfig) -> list[str]:
    """Return the functions to call at every boot.

    The first functions install tools that a minimal image may lack, starting with ``aws``, which reports failures to
    Auto Scaling. The function of each step file follows.
    """
    needs = ["need aws awscli-2"]
    if boot.data_path or boot.ena_express:
        needs.append("need ethtool ethtool")
    if boot.instance_store_mount:
        needs.append("need mkfs.xfs xfsprogs")
    if boot.signing_key:
        needs.append("need openssl openssl")
    steps = needs + [name for name in _list_step_files(boot) if name not in _FILES_WITHOUT_STEP]
    if boot.timed_container:
        pull = steps.index("images")
        steps[pull : pull + 1] = ["before_pull", "images", "after_pull"]
    return steps


def _read_step(step: str) -> str:
    text = (files("voice_userdata") / "steps" / f"{step}.sh").read_text(encoding="utf-8")
    lines = (line.strip() for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("#"))


def _format_value_assignments(boot: HostUserDataConfig) -> list[str]:
    hooks = boot.hooks
    af_xdp = boot.data_path if isinstance(boot.data_path, AfXdpDataPath) else None
    target_group = boot.data_path.ip_target_group_arn if isinstance(boot.data_path, VfioDataPath) else None
    values: dict[str, str | int | None] = {
        "REGION": boot.region,
        "TIER": boot.tier.value,
        "GROUP": boot.auto_scaling_group,
        "LAUNCH_HOOK": hooks.launch_hook_name,
        "TERMINATE_HOOK": hooks.terminate_hook_name,
        "HEARTBEAT_EVERY_S": hooks.heartbeat_interval_s,
        "READY_BUDGET_S": hooks.ready_budget_s,
        "DRAIN_BUDGET_S": hooks.drain_budget_s,
        "LOG_GROUP": boot.log_group,
        "STATE_HOST": boot.state.host_parameter,
        "SECRET": boot.state.secret_arn,
        "SECRET_FIELD": boot.state.password_field,
        "MTU": boot.mtu,
        "PAGE_SIZE_MIB": boot.huge_pages.size_mib if boot.huge_pages else None,
        "PAGE_COUNT": boot.huge_pages.count if boot.huge_pages else None,
        "RX_QUEUES": af_xdp.rx_queues if af_xdp else None,
        "RX_RING_SIZE": af_xdp.rx_ring_size if af_xdp else None,
        "INSTANCE_STORE": boot.instance_store_mount,
        "ARTIFACTS": boot.artifacts.source if boot.artifacts else None,
        "ARTIFACTS_DIR": boot.artifacts.directory if boot.artifacts else None,
        "ARTIFACTS_USER": boot.artifacts.user_id if boot.artifacts else None,
        "STARTING": boot.timed_container.name if boot.timed_container else "",
        "START_LOG": _format_start_log(boot.timed_container) if boot.timed_container else None,
        "TARGET_GROUP": target_group or "",
        "SIGNING_KEY": boot.signing_key,
    }
    return [
        *(f"{name}={_quote(str(value))}" for name, value in values.items() if value is not None),
        _format_bash_array("BOOT_STEPS", _list_boot_steps(boot)),
        _format_bash_array("DEVICES", []),
        _format_bash_array("CONTAINERS", [container.name for container in boot.containers]),
        f"COMMON={_quote_lines(_format_variables(boot.shared_environment))}",
        _format_container_tables(boot),
    ]


def _format_start_log(container: Container) -> str:
    return "|".join(f"{phase}={text}" for phase, text in (container.start_log_prefix_by_phase or {}).items())


def _format_container_tables(boot: HostUserDataConfig) -> str:
    """Return associative arrays with the values for each container. A container without a value has no entry."""
    tables: dict[str, Callable[[Container], Iterable[str]]] = {
        "IMAGE": lambda c: [c.image_uri],
        "ENVIRONMENT": lambda c: _format_variables(c.environment),
        "OPTIONS": lambda c: _build_docker_options(boot, c),
        "COMMAND": lambda c: c.arguments,
        "RUN_AS": lambda c: [str(c.user_id)],
        "WRITABLE": lambda c: [mount.source for mount in c.mounts if mount.is_writable],
        "HARDWARE": lambda c: ["yes"] if c.uses_hardware else [],
        "HEALTH_PORT": lambda c: (
            [f"{c.health.number}{c.health.path}"] if isinstance(c.health, PortReadinessCheck) else []
        ),
    }
    rendered = []
    for table, of in tables.items():
        entries = [(container.name, list(of(container))) for container in boot.containers]
        rendered.append(f"{table}=({' '.join(f'[{name}]={_quote_lines(lines)}' for name, lines in entries if lines)})")
    return "declare -A " + " ".join(rendered)


def _build_docker_options(boot: HostUserDataConfig, container: Container) -> list[str]:
    """Return the arguments to ``docker run`` that differ between containers and do not depend on the host."""
    options = []
    if container.shared_memory_mib:
        options.append(f"--shm-size={container.shared_memory_mib}m")
    options += [f"--group-add={group}" for group in container.supplementary_group_ids]
    options += [f"--cap-add={capability}" for capability in container.capabilities]
    options += [f"--device={device}" for device in container.devices]
    options += [f"--volume={m.source}:{m.target}:{'rw' if m.is_writable else 'ro'}" for m in container.mounts]
    if isinstance(container.health, CommandReadinessCheck):
        options += [f"--health-cmd={container.health.command}", f"--health-interval={container.health.interval_s}s"]
    if container.uses_hardware and boot.data_path:
        options.append("--ulimit=memlock=-1:-1")
    if container.uses_hardware and boot.huge_pages:
        options.append("--volume=/run/voice/hugepages:/dev/hugepages")
    if container.uses_hardware and boot.accelerator == "gpu":
        options.append("--gpus=all")
    return options


def _check_user_data_size(script: str, owner: str) -> str:
    size = calculate_max_deployed_bytes(script)
    if size > MAX_USER_DATA_BYTES:
        raise ValueError(
            f"user data of {owner} is {size} bytes, but EC2 accepts only {MAX_USER_DATA_BYTES}: "
            "move variables of the containers into their images"
        )
    return script


def _format_variables(environment: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in environment.items()]


def _format_bash_array(name: str, items: list[str]) -> str:
    return f"{name}=({' '.join(map(_quote, items))})"


def _quote_lines(items: Iterable[str]) -> str:
    return shlex.quote("\n".join(map(_require_one_line, items)))


def _quote(value: str) -> str:
    return shlex.quote(_require_one_line(value))


def _require_one_line(value: str) -> str:
    if "\n" in value or "\r" in value or "\0" in value:
        raise ValueError(f"{value!r} spans several lines, which environment files and argument lists do not support")
    return value
