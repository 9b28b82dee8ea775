"""EC2: launch templates as they were asked for, and instances whose end takes their interfaces with them."""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult
from moto.ec2 import urls
from moto.ec2.models import instances
from moto.ec2.models.instances import Instance, InstanceState
from moto.ec2.responses import EC2Response
from moto.ec2.utils import parse_user_data

from sandbox.aws.mends.base import result, take_over
from sandbox.aws.mends.ec2_network import NetworkResponses


class MendedEc2(NetworkResponses):
    """moto's EC2 API with what it lacks."""

    def create_launch_template_version(self) -> ActionResult:
        """Answer CreateLaunchTemplateVersion; no host can start from a version whose user data moto left as text."""
        answer = super().create_launch_template_version()
        data = result(answer)["LaunchTemplateVersion"]["LaunchTemplateData"]
        if isinstance(data.get("UserData"), str):
            data["UserData"] = parse_user_data(data["UserData"])
        return answer

    def describe_launch_templates(self) -> ActionResult:
        """Answer DescribeLaunchTemplates; moto stops at 15 without saying so, and shows the tags of the first day."""
        self.params.setdefault("MaxResults", 200)
        answer = super().describe_launch_templates()
        for shown in result(answer)["LaunchTemplates"]:
            shown["Tags"] = self.ec2_backend.get_launch_template(shown["LaunchTemplateId"]).get_tags()
        return answer


class MendedInstance(Instance):
    """An instance that is launched with its interfaces, and takes them with it when it ends."""

    def terminate(self) -> InstanceState:
        """End the instance; moto would leave its primary interface, and so its subnet, in use."""
        for interface in self.nics.values():
            interface.delete_on_termination = True
        return super().terminate()


def install() -> None:
    """Put the mend in place."""
    take_over(urls, EC2Response, MendedEc2)
    module: Any = instances
    module.Instance = MendedInstance
