"""`voice rotate`: rotate the passwords of the state store's users."""

from voice_blueprint.aws import names
from voice_ops.aws.account import SERVICE_TIERS, Account, sign_in
from voice_ops.aws.refusals import ERRORS, command_error
from voice_ops.exits import FAILED, REFUSED
from voice_ops.findings import load_region
from voice_ops.options import DeploymentFile, Json, Region
from voice_ops.output import out, print_json, stop
from voice_ops.rotate.passwords import User, add_password, has_settled, remove_old_passwords, store_users


def rotate(file: DeploymentFile, region: Region = None, as_json: Json = False) -> None:
    """Rotate the passwords of the state store's users, in two runs.

    The first run adds new passwords, the second removes the old ones. Between them the store accepts both, so no call
    is lost. Hosts read the new password within 15 minutes. Gateway and agents read it when their tasks are replaced,
    which takes up to an hour for tasks with calls. Exits with 1 if the second run is too early.

    Example: voice rotate deployments/production-us-east-1.yaml
    """
    deployment = load_region(file, region)
    if deployment.aws_section is None:
        raise stop(f"{file}: has no section `aws`, and so no state store", REFUSED)
    try:
        stacks = [names.stack_name(deployment, tier) for tier in ("state", *SERVICE_TIERS)]
        account = Account(deployment, {stack: {} for stack in stacks}, sign_in(deployment))
        results = list(store_users(account))
        started_users = [user for user in results if user.is_started]
        if len(started_users) == len(results):
            _refuse_early_removal(account, started_users)
        # After an interruption, start the rotation for the remaining users before any old password is removed.
        users_to_start = [user for user in results if not user.is_started] if len(started_users) < len(results) else []
        for user in users_to_start:
            add_password(account, user)
        for user in started_users if not users_to_start else []:
            remove_old_passwords(account, user)
        if users_to_start:
            account.renew_services()
    except KeyError as error:
        raise stop(f"{deployment.name} has no state store yet: {error} is not deployed", FAILED) from None
    except ERRORS as error:
        raise command_error(error) from None
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


def _refuse_early_removal(account: Account, users: list[User]) -> None:
    """Exit if programs may still use the old passwords."""
    if unsettled_users := [user for user in users if not has_settled(user)]:
        ready_at = max(user.settled_at for user in unsettled_users)
        raise stop(
            f"programs are still reading the new passwords: run this command again after {ready_at:%H:%M} UTC", FAILED
        )
    if services := "; ".join(account.unfinished_services(max(user.changed_at for user in users))):
        raise stop(
            f"tasks may still use the old passwords, which remain valid: {services}: run this command again when each "
            "service has one deployment, COMPLETED; tasks with calls are replaced after about an hour",
            FAILED,
        )
