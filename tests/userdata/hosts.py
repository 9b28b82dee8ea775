"""Sample hosts of each deployed kind."""

from dataclasses import replace

from voice_blueprint.contract.metrics import StartPhase
from voice_blueprint.contract.network import PROMETHEUS, Tier
from voice_userdata import (
    AfXdpDataPath,
    Artifacts,
    CommandReadinessCheck,
    Container,
    HostUserDataConfig,
    HugePages,
    LifecycleHooks,
    Mount,
    PortReadinessCheck,
    StateStoreConnection,
    VfioDataPath,
)

REGISTRY = "111122223333.dkr.ecr.us-east-1.amazonaws.com"
TARGET_GROUP = "arn:aws:elasticloadbalancing:us-east-1:111122223333:targetgroup/rtp-ip/6d0ecf831eec9f09"
SECRET_ARN = "arn:aws:secretsmanager:us-east-1:111122223333:secret:production/valkey/vad-AbCdEf"
STATE_HOST = "/voice/production/state-host"
PASSWORD = "correct-horse-battery-staple"
CONTROL_DIR = "/run/voice/dataplane"
READY_PORT = 18081
"""Port number in golden files, in place of the actual port of a test."""


def image(name: str, digit: str) -> str:
    return f"{REGISTRY}/voice-serve/{name}@sha256:{digit * 64}"


def valkey(tier: str) -> dict[str, str]:
    return {
        "VOICE_VALKEY_PORT": "6379",
        "VOICE_VALKEY_USER": tier,
    }


def telemetry(sources: str, *, hardware: bool = False) -> Container:
    return Container(
        name="telemetry",
        image_uri=image("telemetry", "b"),
        environment={
            "VOICE_TELEMETRY_SOURCES": sources,
            "VOICE_PROMETHEUS_PORT": str(PROMETHEUS.number),
        },
        health=CommandReadinessCheck("/usr/bin/voice-telemetry --check"),
        user_id=10001,
        uses_hardware=hardware,
    )


def vad(port: int = READY_PORT) -> HostUserDataConfig:
    return HostUserDataConfig(
        deployment="production",
        fleet="vad-use1-az1",
        tier=Tier.VAD,
        region="us-east-1",
        auto_scaling_group="production-vad-use1-az1",
        hooks=LifecycleHooks("launching", "terminating", heartbeat_timeout_s=45, ready_budget_s=60, drain_budget_s=120),
        containers=(
            Container(
                name="vad-dataplane",
                image_uri=image("vad-dataplane", "a"),
                environment={
                    "VOICE_RTP_PORT": "5004",
                    "VOICE_CHUNK_PORT": "5006",
                    "VOICE_HEALTH_PORT": str(port),
                    "VOICE_DRAIN_TIMEOUT_S": "110",
                },
                health=PortReadinessCheck(port),
                capabilities=("NET_ADMIN", "NET_RAW", "BPF", "PERFMON", "IPC_LOCK", "SYS_ADMIN", "SYS_NICE"),
                uses_hardware=True,
                mounts=(Mount(CONTROL_DIR, CONTROL_DIR, is_writable=True),),
                arguments=("--log", "json"),
            ),
            replace(telemetry("dataplane"), supplementary_group_ids=(0,), mounts=(Mount(CONTROL_DIR, CONTROL_DIR),)),
        ),
        log_group="/voice-serve/production/vad",
        state=StateStoreConnection(STATE_HOST, SECRET_ARN, "password"),
        environment=valkey("vad"),
        mtu=3498,
        huge_pages=HugePages(size_mib=2, count=24576),
        ena_express=True,
        data_path=AfXdpDataPath(rx_queues=4, rx_ring_size=256),
    )


def vad_vfio(port: int = READY_PORT) -> HostUserDataConfig:
    return replace(vad(port), mtu=None, ena_express=False, data_path=VfioDataPath(8, 1024, TARGET_GROUP))


def asr(port: int = READY_PORT) -> HostUserDataConfig:
    """Return an ASR host without an accelerator."""
    return replace(
        vad(port),
        fleet="asr-inf2",
        tier=Tier.ASR,
        auto_scaling_group="production-asr-inf2",
        log_group="/voice-serve/production/asr",
        environment=valkey("asr"),
        mtu=None,
        huge_pages=None,
        ena_express=False,
        data_path=None,
        containers=(
            Container(
                name="engine",
                image_uri=image("asr-neuron", "c"),
                environment={
                    "VOICE_CHUNK_PORT": "5006",
                    "VOICE_HEALTH_PORT": str(port),
                    "VOICE_HOST_KIND": "neuron",
                    "VOICE_ENGINE": "whisper",
                    "VOICE_CACHE_DIR": "/var/cache/voice",
                    "VOICE_DRAIN_TIMEOUT_S": "110",
                },
                health=PortReadinessCheck(port),
                user_id=10001,
                mounts=(Mount("/var/cache/voice/asr", "/var/cache/voice", is_writable=True),),
                uses_hardware=True,
                shared_memory_mib=4096,
                start_log_prefix_by_phase={},
            ),
            telemetry("neuron,engine", hardware=True),
        ),
    )


ARTIFACTS = Artifacts("s3://artifacts/0badf00d", "/var/cache/voice/asr", 10001)


def asr_neuron(port: int = READY_PORT) -> HostUserDataConfig:
    return replace(asr(port), accelerator="neuron", artifacts=ARTIFACTS)


def asr_gpu(port: int = READY_PORT) -> HostUserDataConfig:
    engine, sidecar = asr(port).containers
    return replace(
        asr(port),
        fleet="asr-p5",
        auto_scaling_group="production-asr-p5",
        accelerator="gpu",
        instance_store_mount="/mnt/nvme",
        artifacts=replace(ARTIFACTS, directory="/mnt/nvme/cache"),
        containers=(
            replace(
                engine,
                mounts=(Mount("/mnt/nvme/cache", "/var/cache/voice", is_writable=True),),
                start_log_prefix_by_phase={
                    StartPhase.WEIGHTS: "Loading weights took ",
                    StartPhase.GRAPHS: "Graphs took ",
                },
            ),
            replace(sidecar, environment={**sidecar.environment, "VOICE_TELEMETRY_SOURCES": "gpu,engine"}),
        ),
    )


def asr_vllm(port: int = READY_PORT) -> HostUserDataConfig:
    """Return a host whose Whisper engine sends requests to vLLM."""
    boot = replace(asr(port), fleet="asr-p5", auto_scaling_group="production-asr-p5")
    engine, sidecar = boot.containers
    vllm = replace(
        engine,
        name="asr-vllm",
        image_uri=image("asr-vllm", "d"),
        environment={},
        health=PortReadinessCheck(port, "/health"),
        start_log_prefix_by_phase=None,
    )
    return replace(boot, containers=(replace(engine, health=PortReadinessCheck(port, "/healthz")), vllm, sidecar))


ALL = {"vad": vad, "vad-vfio": vad_vfio, "asr-neuron": asr_neuron, "asr-gpu": asr_gpu}
