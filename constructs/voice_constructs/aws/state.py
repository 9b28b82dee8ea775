"""The state store: ElastiCache for Valkey."""

from dataclasses import dataclass

from aws_cdk import RemovalPolicy, SecretValue
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticache as elasticache
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from voice_blueprint.aws import names
from voice_blueprint.contract.network import VALKEY
from voice_blueprint.contract.state import StateStoreUser
from voice_blueprint.file.model.aws import StateStore
from voice_blueprint.file.model.observability import LogRetentionDays
from voice_constructs.aws.acknowledge import acknowledge
from voice_constructs.aws.encryption import EncryptionKey
from voice_constructs.aws.logs import create_log_group

PASSWORD_LENGTH = 48
PASSWORD_FIELD = "password"  # noqa: S105  the name of a field


@dataclass(frozen=True)
class ValkeyStoreProps:
    """Properties of ``ValkeyStore``.

    Attributes:
        name: Prefix of the users' ids, unique in the account and region.
        group: Id of the replication group. A store that is restored from another snapshot has another id, so
            CloudFormation creates the new group before it deletes the previous one.
        users: Permissions of each user.
        host_parameter: Name of the parameter with the endpoint.
        key_removal_policy: Removal policy of the key.
        removal_policy: Removal policy of the replication group.
    """

    name: str
    group: str
    users: tuple[StateStoreUser, ...]
    host_parameter: str
    region: str
    store: StateStore
    vpc: ec2.IVpc
    security_group: ec2.ISecurityGroup
    log_retention_days: LogRetentionDays
    key_removal_policy: RemovalPolicy
    log_removal_policy: RemovalPolicy
    removal_policy: RemovalPolicy


class ValkeyStore(Construct):
    """A Valkey replication group with TLS, one user per tier, and encryption with its own key.

    Attributes:
        host_parameter: Name of the parameter with the primary's host name. No other stack imports the host name: an
            export in use cannot change, and a restored store has another host name.
        secrets: User and password of each tier, as JSON with ``username`` and ``password``.
        key: Encryption key of the data and the secrets.
        replication_group_id: Id of the replication group; dimension of its AWS/ElastiCache metrics.
    """

    def __init__(self, scope: Construct, id_: str, *, props: ValkeyStoreProps) -> None:
        super().__init__(scope, id_)
        self.replication_group_id = props.group
        self.host_parameter = props.host_parameter
        self.key = EncryptionKey(self, "Key", purpose="session state", removal_policy=props.key_removal_policy)
        self.key.allow_logs(props.region)
        self.secrets = {access.tier: self._build_secret(access.tier.value) for access in props.users}
        users = self._build_users(props)
        group = self._build_replication_group(props, users)
        ssm.StringParameter(
            self,
            "Host",
            parameter_name=props.host_parameter,
            description="Host name of the Valkey primary",
            string_value=group.attr_primary_end_point_address,
        )

    def _build_secret(self, user: str) -> secretsmanager.Secret:
        secret = secretsmanager.Secret(
            self,
            f"{user.capitalize()}Secret",
            description=f"Password of the Valkey user {user}",
            encryption_key=self.key,
            generate_secret_string=secretsmanager.SecretStringGenerator(
                secret_string_template=f'{{"username":"{user}"}}',
                generate_string_key=PASSWORD_FIELD,
                password_length=PASSWORD_LENGTH,
                exclude_punctuation=True,
            ),
        )
        acknowledge(
            secret,
            "AwsSolutions-SMG4",
            "`voice rotate` rotates it: users temporarily have two passwords, which rotation by AWS does not support",
        )
        return secret

    def _build_users(self, props: ValkeyStoreProps) -> elasticache.CfnUserGroup:
        # A group requires a `default` user; this one has no permissions, and its password is not stored.
        rights = {"default": "off resetkeys resetchannels -@all"} | {a.tier.value: a.acl for a in props.users}
        secrets = {"default": self._build_secret("default")} | {t.value: s for t, s in self.secrets.items()}
        users = [
            elasticache.CfnUser(
                self,
                f"{name.capitalize()}User",
                engine="valkey",
                user_id=names.build_state_store_resource_id(props.name, name),
                user_name=name,
                access_string=acl,
                authentication_mode={
                    "Type": "password",
                    "Passwords": [_create_password_reference(secrets[name]).unsafe_unwrap()],
                },
            )
            for name, acl in rights.items()
        ]
        group = elasticache.CfnUserGroup(
            self,
            "Users",
            engine="valkey",
            user_group_id=names.build_state_store_resource_id(props.name, "users"),
            user_ids=[user.user_id for user in users],
        )
        for user in users:
            group.add_resource_dependency(user)
        return group

    def _build_replication_group(
        self, props: ValkeyStoreProps, users: elasticache.CfnUserGroup
    ) -> elasticache.CfnReplicationGroup:
        subnets = elasticache.CfnSubnetGroup(
            self,
            "Subnets",
            description="Isolated subnets of the state store",
            subnet_ids=props.vpc.select_subnets(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED).subnet_ids,
        )
        parameters = elasticache.CfnParameterGroup(
            self,
            "Parameters",
            description="voice-serve session state",
            cache_parameter_group_family=f"valkey{props.store.engine_version.partition('.')[0]}",
            # Every key has a time to live, so the session that expires first is evicted first under memory pressure.
            properties={"maxmemory-policy": "volatile-ttl"},
        )
        logs = {
            kind: create_log_group(
                self,
                name,
                key=self.key,
                retention_days=props.log_retention_days,
                removal_policy=props.log_removal_policy,
            ).log_group_name
            for kind, name in {"slow-log": "SlowLog", "engine-log": "EngineLog"}.items()
        }
        has_replicas = props.store.replicas > 0
        group = elasticache.CfnReplicationGroup(
            self,
            "Valkey",
            replication_group_id=self.replication_group_id,
            replication_group_description="voice-serve session state, host registry and transcript streams",
            engine="valkey",
            engine_version=props.store.engine_version,
            snapshot_name=props.store.restore_from,
            cache_node_type=props.store.node_type,
            num_node_groups=1,
            replicas_per_node_group=props.store.replicas,
            automatic_failover_enabled=has_replicas,
            multi_az_enabled=has_replicas,
            port=VALKEY.number,
            transit_encryption_enabled=True,
            transit_encryption_mode="required",
            at_rest_encryption_enabled=True,
            kms_key_id=self.key.key_arn,
            user_group_ids=[users.ref],
            cache_subnet_group_name=subnets.ref,
            cache_parameter_group_name=parameters.ref,
            security_group_ids=[props.security_group.security_group_id],
            snapshot_retention_limit=props.store.snapshot_retention_days,
            auto_minor_version_upgrade=True,
            log_delivery_configurations=[_build_log_delivery(kind, name) for kind, name in logs.items()],
        )
        group.apply_removal_policy(props.removal_policy)
        acknowledge(
            group,
            "AwsSolutions-AEC6",
            "Every tier has its own user and password (RBAC user group), which a single AUTH token does not support",
        )
        if not has_replicas:
            acknowledge(
                group,
                "AwsSolutions-AEC4",
                "replicas: 0 in the deployment file, which is rejected for production: if the node fails, its "
                "calls end",
            )
        return group


def _create_password_reference(secret: secretsmanager.Secret) -> SecretValue:
    """Return a deploy-time reference to the password, so that the template does not contain the value."""
    return secret.secret_value_from_json(PASSWORD_FIELD)


def _build_log_delivery(
    kind: str, group: str
) -> elasticache.CfnReplicationGroup.LogDeliveryConfigurationRequestProperty:
    return elasticache.CfnReplicationGroup.LogDeliveryConfigurationRequestProperty(
        log_type=kind,
        log_format="json",
        destination_type="cloudwatch-logs",
        destination_details=elasticache.CfnReplicationGroup.DestinationDetailsProperty(
            cloud_watch_logs_details=elasticache.CfnReplicationGroup.CloudWatchLogsDestinationDetailsProperty(
                log_group=group
            )
        ),
    )
