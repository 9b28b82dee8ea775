"""Entry point of the gateway: ``python -m voice_gateway``."""

import asyncio
import sys

from voice_gateway.server import serve
from voice_gateway.settings import GatewaySettings
from voice_runtime import environment, logs
from voice_runtime.store import StoreSettings


def main() -> int:
    """Run the gateway, and return the exit code, which is 1 if the gateway cannot start."""
    settings, store = environment.read_settings(GatewaySettings), environment.read_settings(StoreSettings)
    logs.set_up_logging()
    try:
        asyncio.run(serve(settings, store))
    except OSError as error:
        sys.stderr.write(f"the gateway cannot start: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
