"""What all stacks have in common."""

from aws_cdk import App, Environment, Stack, Tags

from blueprint.aws import names
from blueprint.file.model.deployment import Deployment
from voice_constructs.aws.retention import retention


class VoiceStack(Stack):
    """A stack of one deployment: named, tagged and protected alike.

    Attributes:
        deployment: The deployment.
        retention: What survives the stack's deletion.
    """

    tier: str
    about: str

    def __init__(self, app: App, deployment: Deployment) -> None:
        self.deployment = deployment
        self.retention = retention(deployment.environment)
        super().__init__(
            app,
            names.stack(deployment, self.tier),
            description=f"voice-serve {deployment.name}: {self.about}",
            env=Environment(account=deployment.aws.account, region=deployment.aws.region),
            termination_protection=deployment.aws.deletion_protection,
        )
        tags = Tags.of(self)
        tags.add("voice-serve:deployment", deployment.name)
        tags.add("voice-serve:tier", self.tier)
