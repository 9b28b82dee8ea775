"""Cost of the endpoint per hour."""

from voice_blueprint import catalog


class PriceError(ValueError):
    """No price was found. The message contains the reason and the option to set."""


def find_hourly_price(instance_type: str, region: str | None, gpus: int) -> tuple[float, str]:
    """Return the On-Demand price of an endpoint's accelerators, and its derivation.

    For a type with several accelerators, only the endpoint's share is charged. AWS instance types and Azure VM sizes
    are supported.

    Args:
        region: Region of the price. The default is the cheapest region.

    Raises:
        PriceError: The catalogue does not contain the type, or its price in that region.
    """
    aws, azure = catalog.instance_types().get(instance_type), catalog.vm_sizes().get(instance_type)
    row = aws or azure
    if row is None:
        raise PriceError(f"the catalogue has no instance type {instance_type}; specify --usd-per-hour")
    available = azure.gpu_count if azure else aws.accelerator.count if aws and aws.accelerator else 0
    region = region or min(row.usd_per_hour, key=lambda name: row.usd_per_hour[name])
    if region not in row.usd_per_hour:
        region_names = ", ".join(row.usd_per_hour)
        raise PriceError(
            f"{instance_type} has no price in {region}, only in {region_names}; specify --region or --usd-per-hour"
        )
    if available and gpus > available:
        raise PriceError(f"--gpus {gpus} exceeds the {available} accelerators of {instance_type}")
    share = gpus / available if available else 1.0
    price = row.usd_per_hour[region]
    part = f", {gpus} of its {available} accelerators" if share < 1 else ""
    return price * share, f"{instance_type} in {region}, {price:g} USD per hour ({row.price_date}){part}"
