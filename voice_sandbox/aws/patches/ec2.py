"""EC2: launch templates as requested, and instances whose termination deletes their interfaces."""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult
from moto.ec2 import urls
from moto.ec2.models import instances
from moto.ec2.models.instances import Instance, InstanceState
from moto.ec2.responses import EC2Response
from moto.ec2.utils import parse_user_data

from voice_sandbox.aws.patches.base import get_action_result, replace_response_class
from voice_sandbox.aws.patches.ec2_network import Ec2NetworkResponse


class PatchedEc2(Ec2NetworkResponse):
    """moto's EC2 API, extended with the operations that moto lacks."""

    def create_launch_template_version(self) -> ActionResult:
        """Handle CreateLaunchTemplateVersion; moto would store the user data as text, so that no host could start."""
        answer = super().create_launch_template_version()
        data = get_action_result(answer)["LaunchTemplateVersion"]["LaunchTemplateData"]
        if isinstance(data.get("UserData"), str):
            data["UserData"] = parse_user_data(data["UserData"])
        return answer

    def describe_launch_templates(self) -> ActionResult:
        """Handle DescribeLaunchTemplates with up to 200 templates and their current tags.

        moto would return only 15 templates, without a next token and with their initial tags.
        """
        self.params.setdefault("MaxResults", 200)
        answer = super().describe_launch_templates()
        for template in get_action_result(answer)["LaunchTemplates"]:
            template["Tags"] = self.ec2_backend.get_launch_template(template["LaunchTemplateId"]).get_tags()
        return answer


class PatchedInstance(Instance):
    """An instance that is launched with its interfaces, and deletes them on termination."""

    def terminate(self) -> InstanceState:
        """Terminate the instance; moto would leave its primary interface, and therefore its subnet, in use."""
        for interface in self.nics.values():
            interface.delete_on_termination = True
        return super().terminate()


def install() -> None:
    """Install the patch."""
    replace_response_class(urls, EC2Response, PatchedEc2)
    module: Any = instances
    module.Instance = PatchedInstance
