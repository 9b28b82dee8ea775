"""Plans the teardown of the Azure section with the Pulumi CLI."""

from dataclasses import dataclass

from voice_blueprint.file.model.deployment import Deployment


@dataclass(frozen=True)
class RetainedAzureResource:
    """A resource that a teardown retains, and the reason."""

    resource: str
    why: str


@dataclass(frozen=True)
class AzureTeardown:
    """Steps in a teardown of the Azure section.

    Attributes:
        commands: Commands to run, in this order.
        deleted: Deleted resources, in this order.
    """

    commands: tuple[str, ...]
    deleted: tuple[str, ...]
    kept: tuple[RetainedAzureResource, ...]


def plan_azure_teardown(deployment: Deployment) -> AzureTeardown:
    """Rehearse the teardown on the local engine, and return its steps.

    The engine checks that no resource is deleted while another one needs it.

    Raises:
        EngineError: A program fails, or a resource would be deleted too early.
    """
    from voice_sandbox.rehearsals.azure import Rehearsal  # noqa: PLC0415  a file without this section needs no Pulumi

    with Rehearsal.from_deployment(deployment) as rehearsal:
        rehearsal.run()
        plan = rehearsal.plan_teardown()
        folders = [project.folder for project in reversed(rehearsal.projects)]
    commands = tuple(f"pulumi -C {folder} destroy --stack {deployment.name}" for folder in folders)
    retained = [RetainedAzureResource(resource.label, reason) for resource, reason in plan.retained]
    retained += [
        RetainedAzureResource(resource.label, "Pulumi removes it from its state and leaves it in the cloud")
        for resource in plan.removed_from_state
    ]
    return AzureTeardown(commands, tuple(resource.label for resource in plan.deleted), tuple(retained))
