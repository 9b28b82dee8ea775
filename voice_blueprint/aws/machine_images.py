"""Machine images for hosts: AWS's public images, or images that the deployment's pipelines build."""

from voice_blueprint.catalog import InstanceType

PUBLIC_IMAGE_PARAMETERS = {
    "cpu": "/aws/service/ecs/optimized-ami/amazon-linux-2023/arm64/recommended/image_id",
    "neuron": "/aws/service/ecs/optimized-ami/amazon-linux-2023/neuron/recommended/image_id",
    "gpu": "/aws/service/ecs/optimized-ami/amazon-linux-2023/gpu/recommended/image_id",
}
"""ECS-optimized Amazon Linux 2023 image by kind of compute. The image contains Docker and the accelerator's runtime;
the ECS agent is disabled. Source:
https://docs.aws.amazon.com/AmazonECS/latest/developerguide/retrieve-ecs-optimized_AMI.html"""


def get_public_image_parameter(instance_type: InstanceType) -> str:
    """Return the SSM parameter for AWS's public image for an instance type."""
    return PUBLIC_IMAGE_PARAMETERS[instance_type.compute_kind]


def is_ami_id(machine_image: str) -> bool:
    return machine_image.startswith("ami-")


def is_mutable_image(machine_image: str | None) -> bool:
    """Return True if the image can change without an edit to the file: AWS's latest, or an unversioned parameter."""
    return machine_image is None or not (is_ami_id(machine_image) or ":" in machine_image)


def may_be_custom_built(machine_image: str | None) -> bool:
    """Return True if a pipeline may have built the image; AWS's public images are excluded."""
    return machine_image is not None and not machine_image.startswith("/aws/service/")
