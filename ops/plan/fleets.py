"""The AWS fleets of a deployment, for `voice plan`."""

from rich import box
from rich.table import Table

from blueprint.checks.fleets import Fleet, fleets
from blueprint.file.model.deployment import Deployment
from ops.output import span


def fleet_as_dict(deployment: Deployment, fleet: Fleet) -> dict[str, object]:
    price = fleet.instance_type.usd_per_hour.get(deployment.aws.region)
    return {
        "fleet": fleet.name,
        "instance_type": fleet.instance_type.name,
        "groups": fleet.groups,
        "zones": list(fleet.zones),
        "min_hosts": fleet.min_hosts,
        "max_hosts": fleet.max_hosts,
        "purchase": fleet.purchase.option if fleet.purchase else "on-demand",
        "usd_per_host_hour": price,
        "price_date": fleet.instance_type.price_date,
    }


def fleet_table(deployment: Deployment) -> Table:
    """Return the fleets with their hosts, CPUs and list prices."""
    aws = deployment.aws
    table = Table(
        title=f"{deployment.name} ({deployment.environment}): fleets in {aws.region}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for heading in ("fleet", "instance type", "accelerators"):
        table.add_column(heading, no_wrap=True)
    for heading in ("hosts", "vCPU", "USD/h"):
        table.add_column(heading, justify="right", no_wrap=True)
    for fleet in fleets(deployment):
        row = fleet.instance_type
        price = row.usd_per_hour.get(aws.region)
        table.add_row(
            fleet.name,
            row.name,
            f"{row.accelerator.count} x {row.accelerator.model}" if row.accelerator else "-",
            span(fleet.min_hosts, fleet.max_hosts),
            span(fleet.min_hosts * row.vcpus, fleet.max_hosts * row.vcpus),
            f"{price * fleet.min_hosts:,.2f}-{price * fleet.max_hosts:,.2f}" if price else "not listed",
        )
    table.caption = "USD/h: On-Demand list price of the hosts alone, minimum to maximum"
    table.caption_justify = "left"
    return table
