"""ElastiCache: users, user groups, parameter groups and subnet groups, with changes and deletion."""

from __future__ import annotations

from moto.core.responses import ActionResult
from moto.elasticache.exceptions import ElastiCacheException
from moto.elasticache.models import CacheSubnetGroup
from moto.elasticache.responses import ElastiCacheResponse

from voice_sandbox.aws.patches.base import JsonObject, get_stored_records, store_parameters


class ElastiCacheGroupResponse(ElastiCacheResponse):
    """moto's ElastiCache API, extended with the groups that moto lacks."""

    def create_user_group(self) -> ActionResult:
        """Handle CreateUserGroup; each user must exist, and one must have the name `default`."""
        params = self._get_params()
        name = params["UserGroupId"]
        if name in self._user_groups:
            raise ElastiCacheException("UserGroupAlreadyExistsFault", f"User group {name} already exists.")
        self._validate_users(params["UserIds"])
        group = {
            "UserGroupId": name,
            "Status": "active",
            "Engine": params["Engine"].lower(),
            "UserIds": params["UserIds"],
            "MinimumEngineVersion": "7.2" if params["Engine"].lower() == "valkey" else "6.0",
            "ReplicationGroups": [],
            "ARN": self._build_arn("usergroup", name),
        }
        self._user_groups[name] = group
        self._link_users()
        if params.get("Tags"):
            self.elasticache_backend.add_tags_to_resource(group["ARN"], params["Tags"])
        return ActionResult(group)

    def describe_user_groups(self) -> ActionResult:
        name = self._get_param("UserGroupId")
        return ActionResult({"UserGroups": [self._find_user_group(name)] if name else list(self._user_groups.values())})

    def modify_user_group(self) -> ActionResult:
        params = self._get_params()
        group = self._find_user_group(params["UserGroupId"])
        removed = params.get("UserIdsToRemove", [])
        users = [*(user for user in group["UserIds"] if user not in removed), *params.get("UserIdsToAdd", [])]
        self._validate_users(users)
        group["UserIds"] = users
        self._link_users()
        return ActionResult(group)

    def delete_user_group(self) -> ActionResult:
        """Handle DeleteUserGroup; a group that a replication group uses cannot be deleted."""
        group = self._find_user_group(self._get_param("UserGroupId"))
        if group["ReplicationGroups"]:
            users = ", ".join(group["ReplicationGroups"])
            raise ElastiCacheException(
                "InvalidUserGroupState", f"User group {group['UserGroupId']} is in use by {users}."
            )
        del self._user_groups[group["UserGroupId"]]
        self._link_users()
        return ActionResult({**group, "Status": "deleting"})

    def modify_user(self) -> ActionResult:
        params = self._get_params()
        user = self.elasticache_backend.describe_users(params["UserId"])[0]
        mode = params.get("AuthenticationMode", {})
        store_parameters(user, params, "AccessString", "Engine", "NoPasswordRequired", "Passwords")
        if mode:
            user.authentication_type = mode.get("Type")
            user.passwords = mode.get("Passwords", [])
            user.no_password_required = mode.get("Type") == "no-password-required"
        elif "Passwords" in params:
            user.authentication_type, user.no_password_required = "password", False
        return ActionResult(user)

    def delete_user(self) -> ActionResult:
        """Handle DeleteUser; a member of a group cannot be deleted."""
        user = self.elasticache_backend.describe_users(self._get_param("UserId"))[0]
        if user.user_group_ids:
            groups = ", ".join(user.user_group_ids)
            raise ElastiCacheException("InvalidUserState", f"User {user.id} is a member of {groups}.")
        answer = super().delete_user()
        self.elasticache_backend.users.pop(user.id)
        return answer

    def create_cache_parameter_group(self) -> ActionResult:
        params = self._get_params()
        name = params["CacheParameterGroupName"]
        if name in self._parameter_groups:
            raise ElastiCacheException(
                "CacheParameterGroupAlreadyExists", f"Cache parameter group {name} already exists."
            )
        group = {
            "CacheParameterGroupName": name,
            "CacheParameterGroupFamily": params["CacheParameterGroupFamily"],
            "Description": params["Description"],
            "IsGlobal": False,
            "ARN": self._build_arn("parametergroup", name),
            "parameters": {},
        }
        self._parameter_groups[name] = group
        return ActionResult({"CacheParameterGroup": group})

    def describe_cache_parameter_groups(self) -> ActionResult:
        """Handle DescribeCacheParameterGroups; AWS's own default groups are not listed."""
        name = self._get_param("CacheParameterGroupName")
        parameter_groups = [self._find_parameter_group(name)] if name else list(self._parameter_groups.values())
        return ActionResult({"CacheParameterGroups": parameter_groups})

    def describe_cache_parameters(self) -> ActionResult:
        """Handle DescribeCacheParameters with the parameters that were set; the engine's defaults are unknown."""
        group = self._find_parameter_group(self._get_param("CacheParameterGroupName"))
        descriptions = [
            {"ParameterName": name, "ParameterValue": value, "Source": "user", "IsModifiable": True}
            for name, value in group["parameters"].items()
        ]
        return ActionResult({"Parameters": descriptions})

    def modify_cache_parameter_group(self) -> ActionResult:
        group = self._find_parameter_group(self._get_param("CacheParameterGroupName"))
        for item in self._get_param("ParameterNameValues", []):
            group["parameters"][item["ParameterName"]] = item["ParameterValue"]
        return ActionResult(group)

    def reset_cache_parameter_group(self) -> ActionResult:
        group = self._find_parameter_group(self._get_param("CacheParameterGroupName"))
        named = [item["ParameterName"] for item in self._get_param("ParameterNameValues", [])]
        for name in named or list(group["parameters"]):
            group["parameters"].pop(name, None)
        return ActionResult(group)

    def delete_cache_parameter_group(self) -> ActionResult:
        """Handle DeleteCacheParameterGroup; a group in use cannot be deleted."""
        name = self._get_param("CacheParameterGroupName")
        self._find_parameter_group(name)
        self._validate_unused("cache_parameter_group_name", name, "InvalidCacheParameterGroupState")
        del self._parameter_groups[name]
        return ActionResult({})

    def modify_cache_subnet_group(self) -> ActionResult:
        params = self._get_params()
        name = params["CacheSubnetGroupName"]
        group = self.elasticache_backend.describe_cache_subnet_groups(name)[0]
        patched = CacheSubnetGroup(
            account_id=self.current_account,
            region_name=self.region,
            cache_subnet_group_name=name,
            cache_subnet_group_description=params.get(
                "CacheSubnetGroupDescription", group.cache_subnet_group_description
            ),
            subnet_ids=params.get("SubnetIds", group.subnet_ids),
            tags=group.tags,
        )
        self.elasticache_backend.cache_subnet_groups[name] = patched
        return ActionResult({"CacheSubnetGroup": patched})

    def delete_cache_subnet_group(self) -> ActionResult:
        """Handle DeleteCacheSubnetGroup; a group in use cannot be deleted."""
        name = self._get_param("CacheSubnetGroupName")
        self.elasticache_backend.describe_cache_subnet_groups(name)
        self._validate_unused("cache_subnet_group_name", name, "CacheSubnetGroupInUse")
        del self.elasticache_backend.cache_subnet_groups[name]
        return ActionResult({})

    @property
    def _user_groups(self) -> dict[str, JsonObject]:
        return get_stored_records(self.elasticache_backend, "user_groups")

    @property
    def _parameter_groups(self) -> dict[str, JsonObject]:
        return get_stored_records(self.elasticache_backend, "parameter_groups")

    def _find_user_group(self, name: str) -> JsonObject:
        if name not in self._user_groups:
            raise ElastiCacheException("UserGroupNotFoundFault", f"User group {name} not found.")
        return self._user_groups[name]

    def _find_parameter_group(self, name: str) -> JsonObject:
        if name not in self._parameter_groups:
            raise ElastiCacheException("CacheParameterGroupNotFoundFault", f"CacheParameterGroup {name} not found.")
        return self._parameter_groups[name]

    def _validate_users(self, names: list[str]) -> None:
        users = [self.elasticache_backend.describe_users(name)[0] for name in names]
        defaults = [user for user in users if user.name == "default"]
        if len(defaults) != 1:
            raise ElastiCacheException("DefaultUserRequired", "A user group needs exactly one user named default.")

    def _link_users(self) -> None:
        for user in self.elasticache_backend.users.values():
            user.user_group_ids = [name for name, group in self._user_groups.items() if user.id in group["UserIds"]]

    def _validate_unused(self, attribute: str, name: str, code: str) -> None:
        groups = self.elasticache_backend.replication_groups.values()
        users = [group.replication_group_id for group in groups if getattr(group, attribute) == name]
        if users:
            raise ElastiCacheException(code, f"{name} is in use by {', '.join(users)}.")

    def _build_arn(self, kind: str, name: str) -> str:
        return f"arn:aws:elasticache:{self.region}:{self.current_account}:{kind}:{name}"
