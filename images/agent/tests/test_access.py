"""The agents' own user of the state store has the permissions that the history needs, and no others."""

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from images.conftest import StoreServer
from voice_agent.memory import ConversationHistory
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.state import STATE_USERS
from voice_runtime.store import connect


async def test_memory_works_with_the_permissions_of_the_contract(store: Redis, store_server: StoreServer) -> None:
    [user] = [user for user in STATE_USERS if user.tier is Tier.AGENT]
    await store.execute_command("ACL", "SETUSER", user.tier.value, "reset", ">secret", *user.acl.split())  # type: ignore[no-untyped-call]
    own = {"user": user.tier.value, "password": SecretStr("secret")}
    client = connect(store_server.settings.model_copy(update=own))
    memory = ConversationHistory(client, "c", retention_s=60)
    assert await client.ping()
    assert await memory.take_over() == []
    await memory.add_message("user", "Who are you?")
    await memory.renew_lease()
    assert await memory.take_over() == [{"role": "user", "content": "Who are you?"}]
    await memory.release_lease()
    with pytest.raises(NoPermissionError):
        await client.get("session:1")
    await client.aclose()
