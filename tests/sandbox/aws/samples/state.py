"""Sample of the state store."""

from __future__ import annotations

from tests.sandbox.aws.samples.parts import TAGS, Resources, ref, resource, vpc


def state() -> Resources:
    """Return a Valkey replication group whose user's password is in a secret."""
    password = {"Fn::Join": ["", ["{{resolve:secretsmanager:", ref("Secret"), ":SecretString:password::}}"]]}
    return vpc() | {
        "Secret": resource(
            "SecretsManager::Secret",
            Description="of the gateway",
            GenerateSecretString={
                "SecretStringTemplate": '{"username": "gateway"}',
                "GenerateStringKey": "password",
                "ExcludePunctuation": True,
                "PasswordLength": 40,
            },
            Tags=TAGS,
        ),
        "Subnets": resource(
            "ElastiCache::SubnetGroup", Description="two zones", SubnetIds=[ref("SubnetA"), ref("SubnetB")]
        ),
        "Parameters": resource(
            "ElastiCache::ParameterGroup",
            CacheParameterGroupFamily="valkey8",
            Description="bounded",
            Properties={"maxmemory-policy": "volatile-ttl", "stream-node-max-entries": "100"},
        ),
        "Nobody": resource(
            "ElastiCache::User",
            UserId="nobody",
            UserName="default",
            Engine="valkey",
            AccessString="off -@all",
            NoPasswordRequired=True,
        ),
        "Gateway": resource(
            "ElastiCache::User",
            UserId="gateway",
            UserName="gateway",
            Engine="valkey",
            AccessString="on ~* +@all",
            AuthenticationMode={"Type": "password", "Passwords": [password]},
        ),
        "Users": resource(
            "ElastiCache::UserGroup", UserGroupId="callers", Engine="valkey", UserIds=[ref("Nobody"), ref("Gateway")]
        ),
        "Cache": resource(
            "ElastiCache::ReplicationGroup",
            ReplicationGroupDescription="sessions",
            Engine="valkey",
            EngineVersion="8.0",
            CacheNodeType="cache.r7g.large",
            NumNodeGroups=1,
            ReplicasPerNodeGroup=1,
            AutomaticFailoverEnabled=True,
            MultiAZEnabled=True,
            TransitEncryptionEnabled=True,
            AtRestEncryptionEnabled=True,
            CacheSubnetGroupName=ref("Subnets"),
            CacheParameterGroupName=ref("Parameters"),
            SecurityGroupIds=[ref("Group")],
            SnapshotRetentionLimit=7,
            UserGroupIds=[ref("Users")],
        ),
    }
