"""`voice rotate`: rotate the passwords of the state store users."""

from voice_blueprint.aws import names
from voice_ops.aws.account import SERVICE_TIERS, Account, create_deployment_session
from voice_ops.aws.refusals import AWS_ERRORS, report_aws_error
from voice_ops.exits import FAILED, INVALID_INPUT
from voice_ops.findings import load_region_deployment
from voice_ops.options import DeploymentFileArgument, JsonOption, RegionOption
from voice_ops.output import create_exit, out, print_json
from voice_ops.rotate.passwords import (
    StoreUser,
    add_password,
    has_password_settled,
    list_state_store_users,
    remove_old_passwords,
)


def rotate(file: DeploymentFileArgument, region: RegionOption = None, as_json: JsonOption = False) -> None:
    """Rotate the passwords of the state store's users, in two runs.

    The first run adds new passwords, the second removes the old ones. Between them the store accepts both, so no call
    is lost. Hosts read the new password within 15 minutes. Gateway and agents read it when their tasks are replaced,
    which takes up to an hour for tasks with calls. Exits with 1 if the second run is too early.

    Example: voice rotate deployments/production-us-east-1.yaml
    """
    deployment = load_region_deployment(file, region)
    if deployment.aws_section is None:
        raise create_exit(f"{file}: has no section `aws`, and so no state store", INVALID_INPUT)
    try:
        stacks = [names.build_stack_name(deployment, tier) for tier in ("state", *SERVICE_TIERS)]
        account = Account(deployment, {stack: {} for stack in stacks}, create_deployment_session(deployment))
        results = list(list_state_store_users(account))
        started_users = [user for user in results if user.is_password_rotating]
        if len(started_users) == len(results):
            _refuse_early_removal(account, started_users)
        # After an interruption, start the rotation for the remaining users before any old password is removed.
        users_to_start = (
            [user for user in results if not user.is_password_rotating] if len(started_users) < len(results) else []
        )
        for user in users_to_start:
            add_password(account, user)
        for user in started_users if not users_to_start else []:
            remove_old_passwords(account, user)
        if users_to_start:
            account.redeploy_services()
    except KeyError as error:
        raise create_exit(f"{deployment.name} has no state store yet: {error} is not deployed", FAILED) from None
    except AWS_ERRORS as error:
        raise report_aws_error(error) from None
    if as_json:
        ended = [user.id for user in started_users if not users_to_start]
        print_json({"begun": [user.id for user in users_to_start], "ended": ended}, deployment.name)
    elif users_to_start:
        out.print(
            f"started for {len(users_to_start)} users; run this command again in 15 minutes to complete it",
            soft_wrap=True,
        )
    else:
        out.print(f"ended for {len(started_users)} users: the old passwords are invalid")


def _refuse_early_removal(account: Account, users: list[StoreUser]) -> None:
    """Exit if programs may still use the old passwords."""
    if unsettled_users := [user for user in users if not has_password_settled(user)]:
        ready_at = max(user.settled_at for user in unsettled_users)
        raise create_exit(
            f"programs are still reading the new passwords: run this command again after {ready_at:%H:%M} UTC", FAILED
        )
    if services := "; ".join(account.find_unfinished_services(max(user.changed_at for user in users))):
        raise create_exit(
            f"tasks may still use the old passwords, which remain valid: {services}: run this command again when each "
            "service has one deployment, COMPLETED; tasks with calls are replaced after about an hour",
            FAILED,
        )
