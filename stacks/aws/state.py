"""Session state."""

from aws_cdk import App

from blueprint.aws import names
from blueprint.contract.network import Tier
from blueprint.contract.state import STATE_USERS
from blueprint.file.model.deployment import Deployment
from stacks.aws.network import NetworkStack
from stacks.aws.stack import VoiceStack
from voice_constructs.aws.state import StateStoreProps, ValkeyStore


class StateStack(VoiceStack):
    """Valkey: session state, host registry, transcript streams."""

    tier = "state"
    about = "Valkey state store"

    def __init__(self, app: App, deployment: Deployment, *, network: NetworkStack) -> None:
        super().__init__(app, deployment)
        self.store = ValkeyStore(
            self,
            "Store",
            props=StateStoreProps(
                name=names.state_prefix(deployment),
                group=names.state_group(deployment),
                users=tuple(
                    user for user in STATE_USERS if user.tier is not Tier.AGENT or deployment.aws.agents is not None
                ),
                host_parameter=names.state_host(deployment),
                region=deployment.aws.region,
                store=deployment.aws.state,
                vpc=network.network.vpc,
                security_group=network.network.security_groups[Tier.STATE],
                log_retention_days=deployment.aws.observability.log_retention_days,
                key_policy=self.retention.keys,
                log_policy=self.retention.logs,
                removal_policy=self.retention.store,
            ),
        )
