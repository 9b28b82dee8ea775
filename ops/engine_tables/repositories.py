"""Single files of public repositories, for tools that publish no wheel."""

import hashlib
import urllib.error
import urllib.request
from dataclasses import dataclass

from blueprint.engines.published.release import Origin
from ops.engine_tables.wheels import UnavailableError

_TIMEOUT_S = 20


@dataclass(frozen=True)
class RepositoryFile:
    """One file at one commit.

    Attributes:
        repository: Owner and name on GitHub.
        commit: In full.
        path: In the repository.
        module_path: Where the file stands in the package that it belongs to.
    """

    repository: str
    commit: str
    path: str
    module_path: str

    def fetch(self) -> str:
        """Return the file's text.

        Raises:
            UnavailableError: GitHub cannot be reached, or has no such file.
        """
        url = f"https://raw.githubusercontent.com/{self.repository}/{self.commit}/{self.path}"
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
                return str(answer.read().decode("utf-8"))
        except (urllib.error.URLError, OSError) as error:
            raise UnavailableError(f"{url} cannot be read: {error}") from None

    def origin(self, distribution: str, version: str, text: str) -> Origin:
        """Return where a table comes from that is read from this file."""
        return Origin(
            distribution=distribution,
            version=version,
            file=self.path,
            sha256=hashlib.sha256(text.encode()).hexdigest(),
            repository=self.repository,
            commit=self.commit,
        )


FILES = {
    "router": RepositoryFile(
        repository="vllm-project/production-stack",
        commit="008a23bd48371ffc707875848b19784c348a3de0",
        path="src/vllm_router/parsers/parser.py",
        module_path="vllm_router/parsers/parser.py",
    ),
}
"""By name in the catalogue of engines."""
