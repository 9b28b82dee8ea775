"""`voice rotate`: new passwords for the state store's users."""

from ops.aws.account import Account, sign_in
from ops.aws.refusals import ERRORS, failed
from ops.exits import FAILED, REFUSED
from ops.findings import load_region
from ops.options import DeploymentFile, Json, Region
from ops.output import out, print_json, stop
from ops.rotate.passwords import begin, end, is_over, users


def rotate(file: DeploymentFile, region: Region = None, as_json: Json = False) -> None:
    """Rotate the passwords of the state store's users: begin, and when run again later, end.

    In between, the old and the new password let programs in, so no call is lost; hosts and gateway take a quarter of an
    hour to have the new one. Exits with 1 when it is run again too early.

    Example: voice rotate deployments/production-us-east-1.yaml
    """
    deployment = load_region(file, region)
    if deployment.aws_half is None:
        raise stop(f"{file}: has no section `aws`, and so no state store", REFUSED)
    try:
        account = Account(
            deployment, {f"{deployment.name}-{tier}": {} for tier in ("state", "edge")}, sign_in(deployment)
        )
        found = list(users(account))
        begun = [user for user in found if user.is_begun]
        early = [user for user in begun if not is_over(user)]
        if early and len(begun) == len(found):
            when = max(user.settled_at for user in early)
            raise stop(f"programs still take up the new passwords: run this again after {when:%H:%M} UTC", FAILED)
        # A rotation that broke off is begun for those that are left, and waits for them.
        begins = [user for user in found if not user.is_begun] if len(begun) < len(found) else []
        for user in begins:
            begin(account, user)
        for user in begun if not begins else []:
            end(account, user)
        if begins:
            account.renew_gateway()
    except KeyError as error:
        raise stop(f"{deployment.name} has no state store yet: {error} is not deployed", FAILED) from None
    except ERRORS as error:
        raise failed(error) from None
    if as_json:
        ended = [user.id for user in begun if not begins]
        print_json({"begun": [user.id for user in begins], "ended": ended}, deployment.name)
    elif begins:
        out.print(f"begun for {len(begins)} users; run this again in a quarter of an hour to end it", soft_wrap=True)
    else:
        out.print(f"ended for {len(begun)} users: the old passwords let nobody in")
