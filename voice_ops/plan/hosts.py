"""Builds the tables of AWS fleets and Azure node pools for `voice plan`."""

from rich.table import Table

from voice_blueprint import catalog
from voice_blueprint.aws.fleets import iter_fleets
from voice_blueprint.file.model.azure import CPU_POOL_NAME, JumpHost
from voice_blueprint.file.model.base import HostCount
from voice_blueprint.file.model.deployment import Deployment
from voice_ops.output import create_table, format_range


def create_fleet_table(deployment: Deployment) -> Table:
    """Return a table of the AWS fleets with their hosts, CPUs and list prices."""
    aws = deployment.aws
    table = create_table(
        f"{deployment.name} ({deployment.environment}): fleets in {aws.region}",
        ["fleet", "instance type", "accelerators"],
        ["hosts", "vCPU", "USD/h"],
        caption="USD/h: On-Demand list price of the hosts in service alone, minimum to maximum",
    )
    for fleet in iter_fleets(deployment):
        row = fleet.instance_type
        price = row.usd_per_hour.get(aws.region)
        table.add_row(
            fleet.name,
            row.name,
            f"{row.accelerator.count} x {row.accelerator.model}" if row.accelerator else "-",
            format_range(fleet.min_hosts, fleet.max_hosts)
            + (f" + {fleet.warm_hosts} warm" if fleet.warm_hosts else ""),
            format_range(*fleet.vcpu_range),
            f"{price * fleet.min_hosts:,.2f}-{price * fleet.max_hosts:,.2f}" if price else "not listed",
        )
    return table


def create_pool_table(deployment: Deployment) -> Table:
    """Return a table of the Azure node pools with their nodes, CPUs and list prices."""
    azure = deployment.azure
    table = create_table(
        f"{deployment.name} ({deployment.environment}): node pools in {azure.location}",
        ["pool", "VM size", "GPUs"],
        ["nodes", "vCPU", "USD/h"],
        caption="USD/h: pay-as-you-go Linux list price of the nodes alone, minimum to maximum",
    )
    rows = [("system", azure.system_pool.vm_size, azure.system_pool.nodes, "on-demand")]
    rows += [(CPU_POOL_NAME, pool.vm_size, pool.nodes, "on-demand") for pool in [azure.cpu_pool] if pool]
    rows += [(pool.name, pool.vm_size, pool.nodes, pool.purchase.option) for pool in azure.pools]
    if isinstance(azure.access, JumpHost):
        rows.append(("jump host", azure.access.vm_size, HostCount(min=1, max=1), "on-demand"))
    for name, vm_size, nodes, purchase in rows:
        size = catalog.vm_sizes()[vm_size]
        price = size.usd_per_hour.get(azure.location)
        cost = f"{price * nodes.min:,.2f}-{price * nodes.max:,.2f}" if price else "not listed"
        table.add_row(
            name,
            size.name.removeprefix("Standard_"),
            f"{size.gpu_count} x {size.gpu}" if size.gpu else "-",
            format_range(nodes.min, nodes.max),
            format_range(nodes.min * size.vcpus, nodes.max * size.vcpus),
            cost if purchase == "on-demand" else f"{cost} ({purchase})",
        )
    return table
