"""The hosts of a deployment, for `voice plan`: AWS fleets and Azure node pools."""

from rich.table import Table

from blueprint import catalog
from blueprint.checks.fleets import Fleet, fleets
from blueprint.file.model.azure import Azure, GpuPool
from blueprint.file.model.deployment import Deployment
from ops.output import empty_table, span


def fleet_as_dict(deployment: Deployment, fleet: Fleet) -> dict[str, object]:
    price = fleet.instance_type.usd_per_hour.get(deployment.aws.region)
    return {
        "fleet": fleet.name,
        "instance_type": fleet.instance_type.name,
        "groups": fleet.groups,
        "zones": list(fleet.zones),
        "min_hosts": fleet.min_hosts,
        "max_hosts": fleet.max_hosts,
        "warm_hosts": fleet.warm_hosts,
        "purchase": fleet.purchase.option if fleet.purchase else "on-demand",
        "usd_per_host_hour": price,
        "price_date": fleet.instance_type.price_date,
    }


def fleet_table(deployment: Deployment) -> Table:
    """Return the fleets with their hosts, CPUs and list prices."""
    aws = deployment.aws
    table = empty_table(
        f"{deployment.name} ({deployment.environment}): fleets in {aws.region}",
        ["fleet", "instance type", "accelerators"],
        ["hosts", "vCPU", "USD/h"],
        caption="USD/h: On-Demand list price of the hosts in service alone, minimum to maximum",
    )
    for fleet in fleets(deployment):
        row = fleet.instance_type
        price = row.usd_per_hour.get(aws.region)
        table.add_row(
            fleet.name,
            row.name,
            f"{row.accelerator.count} x {row.accelerator.model}" if row.accelerator else "-",
            span(fleet.min_hosts, fleet.max_hosts) + (f" + {fleet.warm_hosts} warm" if fleet.warm_hosts else ""),
            span(*fleet.vcpus),
            f"{price * fleet.min_hosts:,.2f}-{price * fleet.max_hosts:,.2f}" if price else "not listed",
        )
    return table


def pools(deployment: Deployment) -> tuple[GpuPool, ...]:
    """Return the GPU pools; none where the deployment has no Azure half."""
    return deployment.azure_half.pools if deployment.azure_half else ()


def pool_as_dict(azure: Azure, pool: GpuPool) -> dict[str, object]:
    size = catalog.vm_sizes()[pool.vm_size]
    return {
        "pool": pool.name,
        "vm_size": size.name,
        "gpus_per_node": size.gpu_count,
        "gpu": size.gpu,
        "zones": list(pool.availability_zones or azure.availability_zones),
        "min_nodes": pool.nodes.min,
        "max_nodes": pool.nodes.max,
        "purchase": pool.purchase.option,
        "topology_policy": pool.topology_policy.value,
        "quota_family": size.quota_family,
        "usd_per_node_hour": size.usd_per_hour.get(azure.location),
        "price_date": size.price_date,
    }


def pool_table(deployment: Deployment) -> Table:
    """Return the pools with their nodes, CPUs and list prices."""
    azure = deployment.azure
    table = empty_table(
        f"{deployment.name} ({deployment.environment}): node pools in {azure.location}",
        ["pool", "VM size", "GPUs"],
        ["nodes", "vCPU", "USD/h"],
        caption="USD/h: pay-as-you-go Linux list price of the nodes alone, minimum to maximum",
    )
    rows = [("system", azure.system_pool.vm_size, azure.system_pool.nodes, "on-demand")]
    rows += [(pool.name, pool.vm_size, pool.nodes, pool.purchase.option) for pool in azure.pools]
    for name, vm_size, nodes, purchase in rows:
        size = catalog.vm_sizes()[vm_size]
        price = size.usd_per_hour.get(azure.location)
        cost = f"{price * nodes.min:,.2f}-{price * nodes.max:,.2f}" if price else "not listed"
        table.add_row(
            name,
            size.name.removeprefix("Standard_"),
            f"{size.gpu_count} x {size.gpu}" if size.gpu else "-",
            span(nodes.min, nodes.max),
            span(nodes.min * size.vcpus, nodes.max * size.vcpus),
            cost if purchase == "on-demand" else f"{cost} ({purchase})",
        )
    return table
