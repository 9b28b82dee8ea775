"""Performs the two steps of a rotation. An ElastiCache user can have two valid passwords.

In the first step, a new password is added to the user and stored in the secret. Hosts read the
secret every few minutes, and use it for new connections. In the second step, the old password is removed.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from voice_blueprint.aws import names
from voice_ops.aws.account import Account

PASSWORD_LENGTH = 48
PASSWORD_FIELD = "password"  # noqa: S105  not a secret
PASSWORD_SETTLE_TIME = timedelta(minutes=15)
"""Time after which all programs use the new password.

It is three times the interval at which hosts read the secret (userdata/voice_userdata/steps/drain.sh).
"""


@dataclass(frozen=True)
class StoreUser:
    """A user of the state store.

    Attributes:
        id: Id in ElastiCache.
        secret_id: Id of the secret that contains the password.
        password_count: Number of valid passwords.
        changed_at: Time of the last change of the secret.
    """

    id: str
    secret_id: str
    password_count: int
    changed_at: datetime

    @property
    def is_password_rotating(self) -> bool:
        return self.password_count > 1

    @property
    def settled_at(self) -> datetime:
        return self.changed_at + PASSWORD_SETTLE_TIME


def list_state_store_users(account: Account) -> Iterator[StoreUser]:
    """Yield the users with which programs sign in, without the user `default`."""
    stack = names.build_stack_name(account.deployment, "state")
    physical_names, elasticache = account.fetch_physical_ids(stack), account.session.client("elasticache")
    secrets = account.session.client("secretsmanager")
    for resource in account.fetch_live_templates()[stack]["Resources"].values():
        if resource["Type"] != "AWS::ElastiCache::User" or resource["Properties"]["UserName"] == "default":
            continue
        (result,) = elasticache.describe_users(UserId=resource["Properties"]["UserId"])["Users"]
        (named,) = set(re.findall(r'"Ref": "(\w+)"', json.dumps(resource["Properties"]["AuthenticationMode"])))
        description: Any = secrets.describe_secret(SecretId=physical_names[named])
        changed = description.get("LastChangedDate") or description["CreatedDate"]
        yield StoreUser(result["UserId"], physical_names[named], result["Authentication"]["PasswordCount"], changed)


def add_password(account: Account, user: StoreUser) -> None:
    """Add a new password to the user, and store the password in the secret."""
    secrets = account.session.client("secretsmanager")
    passwords_json = json.loads(secrets.get_secret_value(SecretId=user.secret_id)["SecretString"])
    new = secrets.get_random_password(PasswordLength=PASSWORD_LENGTH, ExcludePunctuation=True)["RandomPassword"]
    _set_passwords(account, user, passwords_json[PASSWORD_FIELD], new)
    secrets.put_secret_value(SecretId=user.secret_id, SecretString=json.dumps({**passwords_json, PASSWORD_FIELD: new}))


def remove_old_passwords(account: Account, user: StoreUser) -> None:
    """Remove all passwords of the user except the password in the secret."""
    secrets = account.session.client("secretsmanager")
    _set_passwords(
        account, user, json.loads(secrets.get_secret_value(SecretId=user.secret_id)["SecretString"])[PASSWORD_FIELD]
    )


def has_password_settled(user: StoreUser) -> bool:
    return datetime.now(UTC) >= user.settled_at


def _set_passwords(account: Account, user: StoreUser, *passwords: str) -> None:
    account.session.client("elasticache").modify_user(
        UserId=user.id, AuthenticationMode={"Type": "password", "Passwords": list(passwords)}
    )
