"""The rules on variables detect violations, each caused by a manual change."""

import pytest

from tests.contract import environment_rules
from tests.contract.sources import SANDBOX
from tests.contract.templates import Template, properties_by_type, text
from voice_blueprint.contract.environment import Variable
from voice_blueprint.contract.images import Image
from voice_blueprint.environment import VARIABLES_BY_IMAGE

Mutable = dict[str, Template]

LAUNCHED_IMAGES = sorted(
    {launch.image for launch in environment_rules.launches(SANDBOX)},
)


@pytest.mark.parametrize("image", LAUNCHED_IMAGES)
def test_a_variable_that_no_launcher_sets_is_reported(image: str, templates: Mutable) -> None:
    more = Variable("VOICE_FORGOTTEN", "made up")
    environment = {**VARIABLES_BY_IMAGE, Image(image): (*VARIABLES_BY_IMAGE[Image(image)], more)}
    problems = environment_rules.violations(templates, environment)
    assert problems
    assert all(problem.endswith("VOICE_FORGOTTEN is read and not set") for problem in problems)


@pytest.mark.parametrize(
    "name", ["VOICE_FLEET", "VOICE_VALKEY_HOST_FILE", "VOICE_RTP_PORT", "VOICE_HOST_ADDRESS", "VOICE_PROMETHEUS_PORT"]
)
def test_a_variable_missing_from_user_data_is_reported(name: str, templates: Mutable) -> None:
    template = properties_by_type({"vad": templates["vad"]}, "EC2::LaunchTemplate")[0]["LaunchTemplateData"]
    script = text(template["UserData"])
    assert f"{name}=" in script
    template["UserData"] = script.replace(f"{name}=", "VOICE_OTHER=")
    assert any(f"{name} is read and not set" in p for p in environment_rules.violations(templates, VARIABLES_BY_IMAGE))


@pytest.mark.parametrize("where", ["Environment", "Secrets"])
def test_a_variable_missing_from_a_task_definition_is_reported(where: str, templates: Mutable) -> None:
    (task,) = properties_by_type({"edge": templates["edge"]}, "ECS::TaskDefinition")
    forgotten = task["ContainerDefinitions"][0][where].pop()["Name"]
    (problem,) = environment_rules.violations(templates, VARIABLES_BY_IMAGE)
    assert problem.endswith(f"{forgotten} is read and not set")


def test_an_unused_variable_of_a_launcher_is_reported(templates: Mutable) -> None:
    (task,) = properties_by_type({"edge": templates["edge"]}, "ECS::TaskDefinition")
    task["ContainerDefinitions"][0]["Environment"].append({"Name": "VOICE_SPARE", "Value": "1"})
    assert len(environment_rules.violations(templates, VARIABLES_BY_IMAGE)) == 1


@pytest.mark.parametrize(
    ("image", "name", "understood"),
    [
        (Image.ASR_VLLM, "VLLM_CACHE_ROOT", True),
        (Image.ASR_VLLM, "VLLM_CACHE_ROOTS", False),
        (Image.ASR_VLLM, "HF_HOME", True),
        (Image.ASR_VLLM, "VOICE_FLEET", False),
        (Image.ASR_NEURON, "NEURON_RT_VISIBLE_CORES", True),
        (Image.ASR_NEURON, "VLLM_CACHE_ROOT", False),
        (Image.TELEMETRY, "HF_HOME", False),
    ],
)
def test_engine_variables_match_the_image_and_its_release(image: Image, name: str, understood: bool) -> None:
    launch = environment_rules.Launch("here", image.value, {name: "1"})
    refusal = f"here, container {image}: {name} is set and not read"
    assert list(environment_rules.check(launch, {image: ()})) == ([] if understood else [refusal])
