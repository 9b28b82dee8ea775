"""The node pools of a deployment on Azure, for `voice plan`."""

from rich import box
from rich.table import Table

from blueprint import catalog
from blueprint.file.model.azure import Azure, GpuPool
from blueprint.file.model.deployment import Deployment
from ops.output import span


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
    table = Table(
        title=f"{deployment.name} ({deployment.environment}): node pools in {azure.location}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for heading in ("pool", "VM size", "GPUs"):
        table.add_column(heading, no_wrap=True)
    for heading in ("nodes", "vCPU", "USD/h"):
        table.add_column(heading, justify="right", no_wrap=True)
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
    table.caption = "USD/h: pay-as-you-go Linux list price of the nodes alone, minimum to maximum"
    table.caption_justify = "left"
    return table
