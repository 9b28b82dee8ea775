"""IAM: policies."""

from __future__ import annotations

from collections.abc import Sequence

from voice_sandbox.aws.adapters.adapter import Adapter, Properties, select_keys
from voice_sandbox.aws.shapes import Json


class InlinePolicy(Adapter):
    """An inline policy for roles; users and groups are not supported."""

    def configure(self, before: Properties, after: Properties) -> None:
        """Attach the policy to its roles, and delete it from roles that the template no longer contains."""
        current_roles = after.get("Roles", []) if before.get("PolicyName") == after.get("PolicyName") else []
        for role in before.get("Roles", []):
            if role not in current_roles:
                self.call("delete_role_policy", RoleName=role, PolicyName=before["PolicyName"])
        for role in after.get("Roles", []):
            self.call("put_role_policy", select_keys(after, "PolicyName", "PolicyDocument"), RoleName=role)

    def compare_with_actual(self, attached: Sequence[Adapter]) -> dict[str, tuple[Json, Json]] | None:  # noqa: ARG002
        """Return the policy document of the first role."""
        role, name = self.properties["Roles"][0], self.properties["PolicyName"]
        response = self.call("get_role_policy", RoleName=role, PolicyName=name)
        return {"PolicyDocument": (self.properties["PolicyDocument"], response["PolicyDocument"])}

    def delete(self) -> None:
        """Delete the policy from all its roles."""
        self.configure(self.properties, {})


class ManagedPolicy(Adapter):
    """A managed policy, which IAM stores in a new version after each change."""

    def configure(self, before: Properties, after: Properties) -> None:
        """Delete old versions, then create a new default version."""
        super().configure(before, after)
        if before["PolicyDocument"] != after["PolicyDocument"]:
            self._delete_old_versions()
            self.call_on_resource(
                "create_policy_version", after, {**select_keys(after, "PolicyDocument"), "SetAsDefault": True}
            )

    def delete(self) -> None:
        """Delete all versions except the default one, then the policy."""
        self._delete_old_versions()
        super().delete()

    def _delete_old_versions(self) -> None:
        for version in self.call("list_policy_versions", PolicyArn=self.id)["Versions"]:
            if not version["IsDefaultVersion"]:
                self.call("delete_policy_version", PolicyArn=self.id, VersionId=version["VersionId"])
