"""What hosts boot from: AWS's own images, or those that the deployment's pipelines bake."""

from blueprint.catalog import InstanceType

PUBLIC_PARAMETERS = {
    "cpu": "/aws/service/ecs/optimized-ami/amazon-linux-2023/arm64/recommended/image_id",
    "neuron": "/aws/service/ecs/optimized-ami/amazon-linux-2023/neuron/recommended/image_id",
    "gpu": "/aws/service/ecs/optimized-ami/amazon-linux-2023/gpu/recommended/image_id",
}
"""ECS-optimized Amazon Linux 2023: Docker and the accelerator's runtime are in it, the ECS agent is switched off.
By what the hosts compute on. Source: https://docs.aws.amazon.com/AmazonECS/latest/developerguide/retrieve-ecs-optimized_AMI.html"""


def public_parameter(instance_type: InstanceType) -> str:
    """Return the SSM parameter of AWS's image for hosts of a type."""
    return PUBLIC_PARAMETERS[instance_type.computes_on]


def is_ami(machine_image: str) -> bool:
    return machine_image.startswith("ami-")


def floats(machine_image: str | None) -> bool:
    """Whether the image changes without an edit of the file: it is AWS's newest, or a parameter without a version."""
    return machine_image is None or not (is_ami(machine_image) or ":" in machine_image)


def may_be_baked(machine_image: str | None) -> bool:
    """Whether the image can be one of a pipeline's: AWS's own are not."""
    return machine_image is not None and not machine_image.startswith("/aws/service/")
