"""The two halves of a rotation. A user of ElastiCache has up to two passwords, and both let its programs in.

Begun: the user takes the old and a new one, the secret has the new one. Hosts read the secret again every few minutes,
and use it when they connect anew. Ended: the user takes the new one alone.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from blueprint.aws import names
from ops.aws.account import Account

LENGTH = 48
FIELD = "password"
SETTLES = timedelta(minutes=15)
"""Three times what a host takes to read the secret again (userdata/steps/drain.sh); the gateway's tasks take less."""


@dataclass(frozen=True)
class User:
    """A user of the state store.

    Attributes:
        id: Its id at ElastiCache.
        secret: Id of the secret with its password.
        passwords: How many let it in.
        changed: When the secret got its value.
    """

    id: str
    secret: str
    passwords: int
    changed: datetime

    @property
    def is_begun(self) -> bool:
        return self.passwords > 1

    @property
    def settled_at(self) -> datetime:
        return self.changed + SETTLES


def users(account: Account) -> Iterator[User]:
    """Yield the users that programs sign in as; `default` is nobody's."""
    stack = names.stack(account.deployment, "state")
    known, elasticache = account.physical_ids(stack), account.session.client("elasticache")
    secrets = account.session.client("secretsmanager")
    for resource in account.live_templates()[stack]["Resources"].values():
        if resource["Type"] != "AWS::ElastiCache::User" or resource["Properties"]["UserName"] == "default":
            continue
        (found,) = elasticache.describe_users(UserId=resource["Properties"]["UserId"])["Users"]
        (named,) = set(re.findall(r'"Ref": "(\w+)"', json.dumps(resource["Properties"]["AuthenticationMode"])))
        about: Any = secrets.describe_secret(SecretId=known[named])
        changed = about.get("LastChangedDate") or about["CreatedDate"]
        yield User(found["UserId"], known[named], found["Authentication"]["PasswordCount"], changed)


def begin(account: Account, user: User) -> None:
    """Let a new password in beside the old one, and hand it out."""
    secrets = account.session.client("secretsmanager")
    held = json.loads(secrets.get_secret_value(SecretId=user.secret)["SecretString"])
    new = secrets.get_random_password(PasswordLength=LENGTH, ExcludePunctuation=True)["RandomPassword"]
    _let_in(account, user, held[FIELD], new)
    secrets.put_secret_value(SecretId=user.secret, SecretString=json.dumps({**held, FIELD: new}))


def end(account: Account, user: User) -> None:
    """Let nothing in but what was handed out."""
    secrets = account.session.client("secretsmanager")
    _let_in(account, user, json.loads(secrets.get_secret_value(SecretId=user.secret)["SecretString"])[FIELD])


def is_over(user: User) -> bool:
    return datetime.now(UTC) >= user.settled_at


def _let_in(account: Account, user: User, *passwords: str) -> None:
    account.session.client("elasticache").modify_user(
        UserId=user.id, AuthenticationMode={"Type": "password", "Passwords": list(passwords)}
    )
