"""IAM: roles, policies and instance profiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sandbox.aws.adapters.base import Adapter, Properties, as_tags, only, tag_map, without


class _Iam(Adapter):
    """Shared by IAM's types: deletion takes a resource off everything it is attached to."""

    service = "iam"
    name_limit = 64


class Role(_Iam):
    """A role with its inline and managed policies."""

    resource_type = "AWS::IAM::Role"
    name = "RoleName"
    replaced_by = frozenset({"Path"})

    def create(self, properties: Properties) -> str:
        """Create the role and give it its policies."""
        self.call("create_role", without(properties, "Policies", "ManagedPolicyArns"))
        role = self.begin(str(properties["RoleName"]))
        self._grant(properties)
        return role

    def update(self, new: Properties) -> None:
        """Change description, trust and policies."""
        self.call("update_role", only(new, "Description", "MaxSessionDuration"), RoleName=self.id)
        self.call("update_assume_role_policy", RoleName=self.id, PolicyDocument=new["AssumeRolePolicyDocument"])
        if "PermissionsBoundary" in new:
            self.call("put_role_permissions_boundary", only(new, "PermissionsBoundary"), RoleName=self.id)
        elif "PermissionsBoundary" in self.properties:
            self.call("delete_role_permissions_boundary", RoleName=self.id)
        self._grant(new)
        if gone := sorted(tag_map(self.properties).keys() - tag_map(new).keys()):
            self.call("untag_role", RoleName=self.id, TagKeys=gone)
        if tags := tag_map(new):
            self.call("tag_role", RoleName=self.id, Tags=as_tags(tags))

    def delete(self) -> None:
        """Delete the role after everything that hangs on it."""
        for name in self.call("list_role_policies", RoleName=self.id)["PolicyNames"]:
            self.call("delete_role_policy", RoleName=self.id, PolicyName=name)
        for policy in self.call("list_attached_role_policies", RoleName=self.id)["AttachedPolicies"]:
            self.call("detach_role_policy", RoleName=self.id, PolicyArn=policy["PolicyArn"])
        self.call("delete_role", RoleName=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return ARN and id."""
        return only(self.call("get_role", RoleName=self.id)["Role"], "Arn", "RoleId")

    def _grant(self, new: Properties) -> None:
        before, after = _documents(self.properties), _documents(new)
        for name in before.keys() - after.keys():
            self.call("delete_role_policy", RoleName=self.id, PolicyName=name)
        for name, document in after.items():
            self.call("put_role_policy", RoleName=self.id, PolicyName=name, PolicyDocument=document)
        had, wanted = set(self.properties.get("ManagedPolicyArns", [])), set(new.get("ManagedPolicyArns", []))
        for arn in sorted(had - wanted):
            self.call("detach_role_policy", RoleName=self.id, PolicyArn=arn)
        for arn in sorted(wanted - had):
            self.call("attach_role_policy", RoleName=self.id, PolicyArn=arn)


def _documents(properties: Properties) -> dict[str, Any]:
    return {policy["PolicyName"]: policy["PolicyDocument"] for policy in properties.get("Policies", [])}


_HOLDERS = (("Roles", "role", "RoleName"), ("Users", "user", "UserName"), ("Groups", "group", "GroupName"))


def _held(properties: Properties) -> set[tuple[str, str, str]]:
    """Return who holds a policy: kind, the argument that names it, and its name."""
    return {(kind, argument, holder) for key, kind, argument in _HOLDERS for holder in properties.get(key, [])}


class Policy(_Iam):
    """An inline policy of roles, users and groups."""

    resource_type = "AWS::IAM::Policy"

    def create(self, properties: Properties) -> str:
        """Put the policy on all its holders."""
        self.update(properties)
        return self.generate_name(self.scope)

    def update(self, new: Properties) -> None:
        """Put the policy on its holders and take it from those that lost it."""
        renamed = self.properties.get("PolicyName") != new["PolicyName"]
        self._remove(_held(self.properties) - (set() if renamed else _held(new)), self.properties)
        for kind, argument, holder in sorted(_held(new)):
            self.call(f"put_{kind}_policy", only(new, "PolicyName", "PolicyDocument"), {argument: holder})

    def delete(self) -> None:
        """Take the policy from all its holders."""
        self._remove(_held(self.properties), self.properties)

    def _remove(self, holders: Iterable[tuple[str, str, str]], properties: Properties) -> None:
        for kind, argument, holder in sorted(holders):
            self.call(f"delete_{kind}_policy", {argument: holder}, PolicyName=properties["PolicyName"])


class ManagedPolicy(_Iam):
    """A managed policy."""

    resource_type = "AWS::IAM::ManagedPolicy"
    name = "ManagedPolicyName"
    name_limit = 128
    replaced_by = frozenset({"Description", "Path"})

    def create(self, properties: Properties) -> str:
        """Create the policy and attach it."""
        own = only(properties, "Description", "Path", "PolicyDocument", "Tags")
        made = self.call("create_policy", own, PolicyName=properties["ManagedPolicyName"])
        arn = self.begin(made["Policy"]["Arn"])
        self._attach(arn, set(), _held(properties))
        return arn

    def update(self, new: Properties) -> None:
        """Make a new default version, and attach and detach."""
        if new["PolicyDocument"] != self.properties["PolicyDocument"]:
            for version in self.call("list_policy_versions", PolicyArn=self.id)["Versions"]:
                if not version["IsDefaultVersion"]:
                    self.call("delete_policy_version", PolicyArn=self.id, VersionId=version["VersionId"])
            self.call(
                "create_policy_version", PolicyArn=self.id, PolicyDocument=new["PolicyDocument"], SetAsDefault=True
            )
        self._attach(self.id, _held(self.properties), _held(new))

    def delete(self) -> None:
        """Detach the policy and delete it with all versions."""
        self._attach(self.id, _held(self.properties), set())
        for version in self.call("list_policy_versions", PolicyArn=self.id)["Versions"]:
            if not version["IsDefaultVersion"]:
                self.call("delete_policy_version", PolicyArn=self.id, VersionId=version["VersionId"])
        self.call("delete_policy", PolicyArn=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the ARN."""
        return {"PolicyArn": self.id}

    def _attach(self, arn: str, before: set[tuple[str, str, str]], after: set[tuple[str, str, str]]) -> None:
        for kind, argument, holder in sorted(before - after):
            self.call(f"detach_{kind}_policy", {argument: holder}, PolicyArn=arn)
        for kind, argument, holder in sorted(after - before):
            self.call(f"attach_{kind}_policy", {argument: holder}, PolicyArn=arn)


class InstanceProfile(_Iam):
    """An instance profile, which hands a role to an instance."""

    resource_type = "AWS::IAM::InstanceProfile"
    name = "InstanceProfileName"
    name_limit = 128
    replaced_by = frozenset({"Path"})

    def create(self, properties: Properties) -> str:
        """Create the profile and put the role into it."""
        self.call("create_instance_profile", without(properties, "Roles"))
        profile = self.begin(str(properties["InstanceProfileName"]))
        self._fill(profile, [], properties.get("Roles", []))
        return profile

    def update(self, new: Properties) -> None:
        """Exchange the role."""
        self._fill(self.id, self.properties.get("Roles", []), new.get("Roles", []))

    def delete(self) -> None:
        """Empty the profile and delete it."""
        self._fill(self.id, self.properties.get("Roles", []), [])
        self.call("delete_instance_profile", InstanceProfileName=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the ARN."""
        profile = self.call("get_instance_profile", InstanceProfileName=self.id)["InstanceProfile"]
        return only(profile, "Arn")

    def _fill(self, profile: str, before: list[str], after: list[str]) -> None:
        for role in before:
            if role not in after:
                self.call("remove_role_from_instance_profile", InstanceProfileName=profile, RoleName=role)
        for role in after:
            if role not in before:
                self.call("add_role_to_instance_profile", InstanceProfileName=profile, RoleName=role)


class ServiceLinkedRole(_Iam):
    """A role that a service uses on its own behalf."""

    resource_type = "AWS::IAM::ServiceLinkedRole"

    def create(self, properties: Properties) -> str:
        """Create the role."""
        return str(self.call("create_service_linked_role", properties)["Role"]["RoleName"])

    def delete(self) -> None:
        """Delete the role."""
        self.call("delete_service_linked_role", RoleName=self.id)
