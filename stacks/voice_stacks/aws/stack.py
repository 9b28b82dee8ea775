"""Base for all stacks."""

from aws_cdk import App, CfnOutput, Environment, Stack, Tags

from voice_blueprint.aws import names
from voice_blueprint.file.model.deployment import Deployment
from voice_constructs.aws.retention import get_retention


class VoiceStack(Stack):
    """A stack of a deployment, with common names, tags and protection.

    Attributes:
        deployment: The deployment.
        retention: Retention of the stack's resources.
    """

    tier: str
    description_text: str

    def __init__(self, app: App, deployment: Deployment) -> None:
        self.deployment = deployment
        self.retention = get_retention(deployment.environment)
        super().__init__(
            app,
            names.build_stack_name(deployment, self.tier),
            description=f"voice-serve {deployment.name}: {self.description_text}",
            env=Environment(account=deployment.aws.account, region=deployment.aws.region),
            termination_protection=deployment.aws.deletion_protection,
        )
        tags = Tags.of(self)
        tags.add(names.DEPLOYMENT_TAG, deployment.name)
        tags.add("voice-serve:tier", self.tier)
        if not deployment.is_first_region:
            # The tag alone is ambiguous: if a region is removed from this file, another file can use its deployment's
            # name.
            CfnOutput(
                self,
                names.DEPLOYMENT_NAME_OUTPUT,
                value=deployment.name_in_file,
                description="Name in the deployment file",
            )

    def export_values(self, *values: str) -> None:
        """Export values for other stacks, whether or not a stack of the current file imports them.

        By default, the CDK only exports imported values. When an importing stack is removed from the file, the CDK
        would delete the export before it updates or deletes the importing stack. CloudFormation rejects the deletion of
        an export in use (docs/decisions/20-fixed-exports.md).

        Args:
            values: Attributes of this stack's resources.
        """
        for value in values:
            self.export_value(value)
