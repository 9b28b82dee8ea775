"""Session state."""

from aws_cdk import App

from voice_blueprint.aws import names
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.state import STATE_USERS
from voice_blueprint.file.model.deployment import Deployment
from voice_constructs.aws.state import ValkeyStore, ValkeyStoreProps
from voice_stacks.aws.network import NetworkStack
from voice_stacks.aws.stack import VoiceStack


class StateStack(VoiceStack):
    """Valkey: session state, host registry, transcript streams."""

    tier = "state"
    description_text = "Valkey state store"

    def __init__(self, app: App, deployment: Deployment, *, network: NetworkStack) -> None:
        super().__init__(app, deployment)
        self.store = ValkeyStore(
            self,
            "Store",
            props=ValkeyStoreProps(
                name=names.build_state_user_prefix(deployment),
                group=names.build_state_group_id(deployment),
                # The agents' user exists even without agents, since agents can be removed from the file while their
                # tasks still use the user.
                users=STATE_USERS,
                host_parameter=names.build_state_host_parameter_name(deployment),
                region=deployment.aws.region,
                store=deployment.aws.state,
                vpc=network.network.vpc,
                security_group=network.network.security_groups[Tier.STATE],
                log_retention_days=deployment.aws.observability.log_retention_days,
                key_removal_policy=self.retention.keys,
                log_removal_policy=self.retention.logs,
                removal_policy=self.retention.store,
            ),
        )
        self.export_values(self.store.key.key_arn, *(secret.secret_arn for secret in self.store.secrets.values()))
