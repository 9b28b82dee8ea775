"""The rules on variables bite: one thing is changed by hand, and a violation must come of it."""

import json

import pytest

from blueprint.contract.environment import ENVIRONMENT, Variable
from blueprint.contract.images import Image
from tests.contract import environment_rules
from tests.contract.sources import SANDBOX
from tests.contract.templates import Template, properties_of

Mutable = dict[str, Template]

LAUNCHED = sorted(
    {launch.image for launch in environment_rules.launches(SANDBOX)},
)


@pytest.mark.parametrize("image", LAUNCHED)
def test_image_reads_a_variable_that_no_launcher_sets(image: str, templates: Mutable) -> None:
    more = Variable("VOICE_FORGOTTEN", "made up")
    environment = {**ENVIRONMENT, Image(image): (*ENVIRONMENT[Image(image)], more)}
    problems = environment_rules.violations(templates, environment)
    assert problems
    assert all(problem.endswith("VOICE_FORGOTTEN is read and not set") for problem in problems)


@pytest.mark.parametrize(
    "name", ["VOICE_FLEET", "VOICE_VALKEY_HOST_FILE", "VOICE_RTP_PORT", "VOICE_HOST_ADDRESS", "VOICE_PROMETHEUS_PORT"]
)
def test_user_data_forgets_a_variable(name: str, templates: Mutable) -> None:
    template = properties_of({"vad": templates["vad"]}, "EC2::LaunchTemplate")[0]["LaunchTemplateData"]
    script = json.dumps(template["UserData"])
    assert f"{name}=" in script
    template["UserData"] = json.loads(script.replace(f"{name}=", "VOICE_OTHER="))
    assert any(f"{name} is read and not set" in p for p in environment_rules.violations(templates, ENVIRONMENT))


@pytest.mark.parametrize("where", ["Environment", "Secrets"])
def test_task_definition_forgets_a_variable(where: str, templates: Mutable) -> None:
    (task,) = properties_of({"edge": templates["edge"]}, "ECS::TaskDefinition")
    forgotten = task["ContainerDefinitions"][0][where].pop()["Name"]
    (problem,) = environment_rules.violations(templates, ENVIRONMENT)
    assert problem.endswith(f"{forgotten} is read and not set")


def test_launcher_sets_a_variable_that_nobody_reads(templates: Mutable) -> None:
    (task,) = properties_of({"edge": templates["edge"]}, "ECS::TaskDefinition")
    task["ContainerDefinitions"][0]["Environment"].append({"Name": "VOICE_SPARE", "Value": "1"})
    assert len(environment_rules.violations(templates, ENVIRONMENT)) == 1


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
def test_variables_of_an_engine_are_for_its_image_and_of_its_release(image: Image, name: str, understood: bool) -> None:
    launch = environment_rules.Launch("here", image.value, {name: "1"})
    refusal = f"here, container {image}: {name} is set and not read"
    assert list(environment_rules.check(launch, {image: ()})) == ([] if understood else [refusal])
