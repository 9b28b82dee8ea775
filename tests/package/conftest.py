import pytest

from tests.package.installed import Installed, install


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(tmp_path_factory.mktemp("package"), "sandbox,simulate")
