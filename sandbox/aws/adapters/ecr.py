"""ECR: repositories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Adapter, Properties, only, tag_map


class Repository(Adapter):
    """A repository. Not represented: exclusion filters of immutable tags."""

    resource_type = "AWS::ECR::Repository"
    service = "ecr"
    name = "RepositoryName"
    name_lower = True
    replaced_by = frozenset({"EncryptionConfiguration"})

    def create(self, properties: Properties) -> str:
        """Create the repository with its policies."""
        created = only(
            properties, "RepositoryName", "ImageTagMutability", "ImageScanningConfiguration", "EncryptionConfiguration"
        )
        tags = [{"Key": key, "Value": value} for key, value in tag_map(properties).items()]
        self.call("create_repository", created, tags=tags)
        name = self.begin(str(properties["RepositoryName"]))
        self._policies(properties)
        return name

    def update(self, new: Properties) -> None:
        """Change scanning, mutability and policies."""
        named = {"repositoryName": self.id}
        mutability = {"imageTagMutability": new.get("ImageTagMutability", "MUTABLE")}
        self.call("put_image_tag_mutability", named, mutability)
        scanning = new.get("ImageScanningConfiguration", {"ScanOnPush": False})
        self.call("put_image_scanning_configuration", named, imageScanningConfiguration=scanning)
        self._policies(new)

    def delete(self) -> None:
        """Delete the repository; images keep it unless the template says otherwise."""
        force = str(self.properties.get("EmptyOnDelete", False)).lower() == "true"
        self.call("delete_repository", repositoryName=self.id, force=force)

    def attributes(self) -> Mapping[str, Any]:
        """Return ARN and URI."""
        repository = self.call("describe_repositories", repositoryNames=[self.id])["repositories"][0]
        return {"Arn": repository["repositoryArn"], "RepositoryUri": repository["repositoryUri"]}

    def _policies(self, new: Properties) -> None:
        lifecycle = new.get("LifecyclePolicy", {}).get("LifecyclePolicyText")
        if lifecycle:
            self.call("put_lifecycle_policy", repositoryName=self.id, lifecyclePolicyText=lifecycle)
        elif "LifecyclePolicy" in self.properties:
            self.call("delete_lifecycle_policy", repositoryName=self.id)
        if "RepositoryPolicyText" in new:
            self.call("set_repository_policy", repositoryName=self.id, policyText=new["RepositoryPolicyText"])
        elif "RepositoryPolicyText" in self.properties:
            self.call("delete_repository_policy", repositoryName=self.id)
