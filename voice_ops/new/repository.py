"""Creates the files of a platform team's repository, from templates and files that this release ships."""

import re
from importlib.metadata import version
from pathlib import Path
from string import Template

import voice_stacks
from voice_blueprint.shipped import ROOT

HOMEPAGE = "https://github.com/voice-serve/voice-serve"
EXECUTABLE_FILES = (".ci/setup", ".ci/deploy-aws", ".ci/deploy-azure", ".ci/drift", ".ci/images")

_TEMPLATE_FOLDER = Path(__file__).with_name("template")
_STACKS_FOLDER = Path(voice_stacks.__file__).parent / "azure"
_PULUMI_PROJECTS = ("cluster", "workloads", "policy")
_RENAMED_FILES = {
    "gitignore": ".gitignore",
    "setup": ".ci/setup",
    "activate": ".ci/activate",
}
_SHIPPED_FILES = (
    ".gitlab-ci.yml",
    ".ci/deploy-aws",
    ".ci/deploy-azure",
    ".ci/drift",
    ".ci/images",
    ".ci/report.sh",
    ".github/workflows/deploy-aws.yml",
    ".github/workflows/deploy-azure.yml",
    ".github/workflows/drift.yml",
    ".github/workflows/images.yml",
    "cdk.json",
    "images/vulnerabilities.yaml",
    "package.json",
    "package-lock.json",
)
_PATH_REPLACEMENTS = {
    "make -C build/previous setup": "build/previous/.ci/setup",
    'make -C "build/$1" setup': '"build/$1/.ci/setup"',
    "run: make setup": "run: .ci/setup",
    "- make setup": "- .ci/setup",
    "ca-certificates git make python3-venv": "ca-certificates git python3-venv",
    "changes: [deployments/**/*]": "changes: [deployments/**/*, requirements.txt]",
    "stacks/voice_stacks/azure/$project": "projects/$project",
    '"../../../../$file"': '"../../$file"',
    "virtualenv: ../../../../.venv": "virtualenv: ../../.venv",
    "`make setup`": "`.ci/setup`",
    "paths: [deployments/**]": "paths: [deployments/**, requirements.txt]",
}
"""Text replacements that adapt shipped files from the layout of a checkout to that of a team's repository."""
_REPOSITORY_JOBS_PATTERN = re.compile(r"^(?:ci|nightly):\n(?:  .*\n)+\n", re.MULTILINE)
"""GitLab jobs that test this product. On GitHub, these jobs are in separate files."""


def render_repository_files(name: str) -> dict[str, str]:
    """Return the text of each file in the repository except the deployment file, by path.

    Args:
        name: Name of the deployment and of the Pulumi stack.
    """
    values = {"name": name, "version": version("voice-serve"), "home": HOMEPAGE}
    results: dict[str, str] = {}
    for file in sorted(_TEMPLATE_FOLDER.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            path = file.relative_to(_TEMPLATE_FOLDER).as_posix()
            path = f"projects/{path}" if path.startswith(_PULUMI_PROJECTS) else _RENAMED_FILES.get(path, path)
            text = file.read_text(encoding="utf-8")
            results[path] = Template(text).substitute(values) if file.suffix in {".md", ".txt", ".yml"} else text
    for path in _SHIPPED_FILES:
        results[path] = _rewrite_paths((ROOT / path).read_text(encoding="utf-8"))
    for project in _PULUMI_PROJECTS:
        settings = "PulumiPolicy.yaml" if project == "policy" else "Pulumi.yaml"
        results[f"projects/{project}/{settings}"] = _rewrite_paths(
            (_STACKS_FOLDER / project / settings).read_text(encoding="utf-8")
        )
        if project != "policy":
            results[f"projects/{project}/Pulumi.{name}.yaml"] = (
                f"config:\n  voice-{project}:deployment: ../../deployments/{name}.yaml\n"
            )
    results["deployments/schema.json"] = (ROOT / "deployments/schema.json").read_text(encoding="utf-8")
    return results


def _rewrite_paths(text: str) -> str:
    for old_path, new_path in _PATH_REPLACEMENTS.items():
        text = text.replace(old_path, new_path)
    return _REPOSITORY_JOBS_PATTERN.sub("", text)
