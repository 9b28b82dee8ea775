"""All Dockerfiles follow each rule, and each rule detects a planted mistake."""

import re
from pathlib import Path

import pytest

from tests.images import rules
from tests.images.dockerfile import parse, read
from tests.nonempty import nonempty
from voice_blueprint.contract.images import Image
from voice_blueprint.images import IMAGES_FOLDER, SPEC_FILE, BuiltImage, HttpHealthCheck, load_image_specs

BUILT_IMAGES = [spec for spec in load_image_specs().values() if isinstance(spec, BuiltImage)]
VLLM = next(spec for spec in BUILT_IMAGES if spec.name == "asr-vllm")
ROUTER = next(spec for spec in BUILT_IMAGES if spec.name == "pd-router")


@pytest.mark.parametrize("spec", BUILT_IMAGES, ids=lambda spec: spec.name)
def test_dockerfiles_follow_every_rule(spec: BuiltImage) -> None:
    assert rules.check(read(spec.folder), spec) == []


@pytest.mark.parametrize("spec", BUILT_IMAGES, ids=lambda spec: spec.name)
def test_dockerfiles_and_specs_contain_no_catalogue_version(spec: BuiltImage) -> None:
    for file in (spec.folder / "Dockerfile", spec.folder / SPEC_FILE, *spec.folder.glob("*.in")):
        assert list(rules.no_second_version(file.read_text(encoding="utf-8"))) == [], file


def test_specs_of_mirrored_images_contain_no_catalogue_version() -> None:
    for file in nonempty(IMAGES_FOLDER.glob(f"*/{SPEC_FILE}")):
        assert list(rules.no_second_version(file.read_text(encoding="utf-8"))) == [], file


PYTHON_PROGRAMS = (Image.TELEMETRY, Image.WHISPER_ENGINE)
"""Images with Debian's Python; gateway and agent compile a package instead.

Dockerfiles cannot include each other, so the two files repeat the same structure.
"""


def build_stage(image: Image) -> list[str]:
    """Return the instructions of the first stage without the image's and its folder's names."""
    instructions = read(IMAGES_FOLDER / image).stages[0]
    return [re.sub(rf"/opt/\w+|images/{image}", "<own>", f"{each.keyword} {each.text}") for each in instructions]


def test_python_programs_have_the_same_build_stage() -> None:
    first, *others = map(build_stage, PYTHON_PROGRAMS)
    assert len(first) > 5
    assert all(other == first for other in others)


PLANTED_MISTAKES = [
    (VLLM, "FROM ${BASE_IMAGE}", "FROM docker.io/vllm/vllm-openai:v1", "is no base of image.yaml"),
    (VLLM, "FROM ${BASE_IMAGE}", "FROM vllm/vllm-openai:latest", "`latest` is not a version"),
    (VLLM, "FROM ${BASE_IMAGE}", "FROM ${OTHER_IMAGE}", "is no base of image.yaml"),
    (VLLM, "ARG BASE_IMAGE\n", "", "BASE_IMAGE is missing"),
    (VLLM, "ARG BASE_IMAGE\n", "ARG BASE_IMAGE=ubuntu:24.04\n", "BASE_IMAGE is missing or has a default"),
    (VLLM, "ARG NIXL_VERSION\n", "", "gives NIXL_VERSION, the Dockerfile does not take it"),
    (VLLM, "ARG NIXL_VERSION\n", "ARG NIXL_VERSION=9\n", "NIXL_VERSION has the default 9"),
    (VLLM, "ARG NIXL_VERSION\n", "ARG NIXL_VERSION\nARG UCX_VERSION\n", "UCX_VERSION is not in image.yaml"),
    (VLLM, '"nixl==${NIXL_VERSION}"', "", "NIXL_VERSION is used nowhere"),
    (VLLM, "--require-hashes ", "", "without --require-hashes"),
    (VLLM, "rm -rf /var/lib/apt/lists/*", "rm -rf /var/lib/apt/lists/* || true", "forgives a failure"),
    (VLLM, "rm -rf /var/lib/apt/lists/*", "curl -fsSL https://x/y | sh", "downloads without"),
    (VLLM, "COPY images/asr-vllm/requirements.txt", "ADD https://x/y.tar", "COPY says what it does"),
    (VLLM, "src/layer_check.py /opt", "src/gone.py /opt", "src/gone.py is not in the repository"),
    (VLLM, "asr-vllm/src/layer_check.py /opt", "pd-router/requirements.txt /opt", "neither asr-vllm's nor shared"),
    (VLLM, "src/layer_check.py /opt", "image.yaml /opt", "image.yaml is kept out by .dockerignore"),
    (VLLM, "USER 10001:10001\n", "", "runs as nobody that it names"),
    (VLLM, "USER 10001:10001\n", "USER 10001:10001\nUSER root\n", "runs as root, not as 10001"),
    (VLLM, "USER 10001:10001\n", "USER voice-serve\n", "runs as voice-serve"),
    (VLLM, "ENTRYPOINT []", "HEALTHCHECK CMD true\nENTRYPOINT []", "image.yaml says how to ask"),
    (VLLM, "HOME=/var/cache/voice ", "HOME=/root ", "HOME is /root, not below"),
    (VLLM, "ENTRYPOINT []", "ENV HF_TOKEN=x\nENTRYPOINT []", "HF_TOKEN would be in the image's history"),
    (VLLM, "ARG NIXL_VERSION\n", "ARG NIXL_VERSION\nARG GIT_PASSWORD\n", "GIT_PASSWORD would be in"),
    (ROUTER, 'sh /run/debian.sh "${DEBIAN_SNAPSHOT}"', "apt-get install -y", "installs by apt"),
    (ROUTER, "source=images/debian.sh", "source=images/gone.sh", "images/gone.sh is not in the repository"),
    (ROUTER, "source=images/debian.sh", "source=images/bases.yaml", "neither pd-router's nor shared"),
    (ROUTER, "--from=build /opt/router", "--from=docker.io/x/python:3 /opt/router", "an image that is no argument"),
    (ROUTER, "AS build", "AS other\nUSER 10001\nFROM python:3 AS build", "FROM python:3 is no base"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "old", "new", "problem"), PLANTED_MISTAKES, ids=lambda value: str(getattr(value, "name", value))[:30]
)
def test_a_planted_mistake_is_detected(spec: BuiltImage, old: str, new: str, problem: str) -> None:
    text = (spec.folder / "Dockerfile").read_text(encoding="utf-8")
    assert old in text
    assert problem in "\n".join(rules.check(parse(text.replace(old, new)), spec))


def test_the_last_stage_determines_the_user() -> None:
    text = (ROUTER.folder / "Dockerfile").read_text(encoding="utf-8") + "FROM build\n"
    assert rules.check(parse(text), ROUTER) == ["runs as nobody that it names, not as 10001"]


def test_a_probe_of_an_unused_port_is_detected() -> None:
    deaf = VLLM.model_copy(update={"health": HttpHealthCheck(port="contract.VALKEY", path="/health")})
    assert list(rules.is_healthy(read(VLLM.folder), deaf)) == [
        "health is asked on contract.VALKEY, which is none of its ports"
    ]


@pytest.mark.parametrize(
    "text", ["RUN pip install vllm==0.33.0", "ARG X=0.5.6", "FROM x:v0.18.0", "image: a:4.6.0-4.8.3"]
)
def test_a_second_copy_of_a_version_is_detected(text: str) -> None:
    assert list(rules.no_second_version(text))


@pytest.mark.parametrize("text", ["numactl 2.0.14", "10.33.0.1", "CUDA 13", "3.13.5-1"])
def test_other_numbers_are_not_engine_versions(text: str) -> None:
    assert not list(rules.no_second_version(text))


def test_the_parser_joins_lines_and_skips_comments() -> None:
    docker = parse(
        '# a\nARG A\nRUN one \\\n  # not this\n  && two\nCOPY --from=x --chown=1 a "b c" /d/\nCMD ["e", "f g"]\n'
    )
    assert [(item.line, item.keyword) for item in docker.instructions] == [
        (2, "ARG"), (3, "RUN"), (6, "COPY"), (7, "CMD"),
    ]  # fmt: skip
    assert docker.instructions[1].text == "one && two"
    assert docker.instructions[2].flags == ["--from=x", "--chown=1"]
    assert docker.instructions[2].words == ["a", '"b c"', "/d/"]
    assert docker.instructions[3].words == ["e", "f g"]


@pytest.mark.parametrize(
    ("text", "message"), [("RUN <<EOF\nx\nEOF\n", "here-documents"), ("RUN a \\\n", "in the middle")]
)
def test_the_parser_rejects_unsupported_syntax(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_no_folder_of_an_image_is_missing_from_the_rules() -> None:
    assert {file.parent.name for file in Path(IMAGES_FOLDER).glob("*/Dockerfile")} == {
        spec.name for spec in BUILT_IMAGES
    }
