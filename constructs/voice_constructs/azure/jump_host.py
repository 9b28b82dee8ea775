"""A jump host in the network for operators, with access through Bastion."""

import base64
import hashlib

import pulumi
from pulumi_azure_native import compute, network

from voice_blueprint.azure.names import Role
from voice_blueprint.file.model.azure import JumpHost
from voice_constructs.azure.identity import assign_admin_roles
from voice_constructs.azure.network import BASTION_SUBNET_NAME, VoiceNetwork
from voice_constructs.azure.scope import Scope

_DISK_GIB = 256
"""Space for building the images in this repository, the largest of which unpacks to about 30 GiB."""
_PACKAGES = ("buildah", "git", "make", "python3-venv")
"""Ubuntu packages for `make setup` and `voice images build-args --tool buildah`."""


def create_unusable_public_key() -> str:
    """Return a public SSH key without a private key, since Azure requires a key but users sign in with Entra.

    The 32 bytes of the key are a hash, so its private key is unknown.
    """
    point = hashlib.sha256(b"voice-serve: nobody has the private half of this key").digest()
    fields = (b"ssh-ed25519", point)
    blob = b"".join(len(field).to_bytes(4, "big") + field for field in fields)
    return f"ssh-ed25519 {base64.b64encode(blob).decode()} nobody"


class JumpHostMachine(pulumi.ComponentResource):
    """An Ubuntu machine without a public address, and the Bastion host for access to it.

    Bastion has the Standard SKU, since the Basic one does not support terminal sessions
    (https://learn.microsoft.com/azure/bastion/native-client). The platform installs patches.

    Attributes:
        id: Resource id of the machine, on which the sign-in role is granted.
    """

    def __init__(self, name: str, *, scope: Scope, network: VoiceNetwork, access: JumpHost) -> None:
        super().__init__("voice:azure:JumpMachine", name)
        self._scope = scope
        machine = self._build_machine(name, access.vm_size, network.subnet_ids["jump"])
        self._build_bastion(network)
        self.id: pulumi.Output[str] = machine.id
        grants: list[tuple[str, Role, pulumi.Input[str]]] = [
            ("find-jump-host", Role.READER, scope.group_id),
            ("sign-in-to-jump-host", Role.VIRTUAL_MACHINE_ADMINISTRATOR_LOGIN, machine.id),
        ]
        assign_admin_roles(grants, scope=scope, parent=self)
        self.register_outputs({})

    def _build_machine(self, name: str, vm_size: str, subnet: pulumi.Input[str]) -> compute.VirtualMachine:
        scope, inside = self._scope, pulumi.ResourceOptions(parent=self)
        interface = network.NetworkInterface(
            name,
            resource_group_name=scope.group,
            network_interface_name=scope.build_name(name),
            location=scope.location,
            ip_configurations=[
                network.NetworkInterfaceIPConfigurationArgs(
                    name="private",
                    private_ip_allocation_method=network.IPAllocationMethod.DYNAMIC,
                    subnet=network.SubnetArgs(id=subnet),
                )
            ],
            tags=scope.tags,
            opts=inside,
        )
        setup = f"#cloud-config\npackage_update: true\npackages: [{', '.join(_PACKAGES)}]\n"
        machine = compute.VirtualMachine(
            name,
            resource_group_name=scope.group,
            vm_name=scope.build_name(name),
            location=scope.location,
            hardware_profile=compute.HardwareProfileArgs(vm_size=vm_size),
            # The extension for sign-in with Entra requires an identity. This one has no permissions.
            identity=compute.VirtualMachineIdentityArgs(type=compute.ResourceIdentityType.SYSTEM_ASSIGNED),
            network_profile=compute.NetworkProfileArgs(
                network_interfaces=[
                    compute.NetworkInterfaceReferenceArgs(
                        id=interface.id, primary=True, delete_option=compute.DeleteOptions.DELETE
                    )
                ]
            ),
            os_profile=compute.OSProfileArgs(
                computer_name=name,
                admin_username="nobody-signs-in",
                custom_data=base64.b64encode(setup.encode()).decode(),
                linux_configuration=compute.LinuxConfigurationArgs(
                    disable_password_authentication=True,
                    ssh=compute.SshConfigurationArgs(
                        public_keys=[
                            compute.SshPublicKeyArgs(
                                key_data=create_unusable_public_key(), path="/home/nobody-signs-in/.ssh/authorized_keys"
                            )
                        ]
                    ),
                    patch_settings=compute.LinuxPatchSettingsArgs(
                        patch_mode=compute.LinuxVMGuestPatchMode.AUTOMATIC_BY_PLATFORM,
                        assessment_mode=compute.LinuxPatchAssessmentMode.AUTOMATIC_BY_PLATFORM,
                    ),
                ),
            ),
            security_profile=compute.SecurityProfileArgs(
                encryption_at_host=True,
                security_type=compute.SecurityTypes.TRUSTED_LAUNCH,
                uefi_settings=compute.UefiSettingsArgs(secure_boot_enabled=True, v_tpm_enabled=True),
            ),
            storage_profile=compute.StorageProfileArgs(
                image_reference=compute.ImageReferenceArgs(
                    publisher="Canonical", offer="ubuntu-24_04-lts", sku="server", version="latest"
                ),
                os_disk=compute.OSDiskArgs(
                    create_option=compute.DiskCreateOptionTypes.FROM_IMAGE,
                    delete_option=compute.DiskDeleteOptionTypes.DELETE,
                    disk_size_gb=_DISK_GIB,
                    managed_disk=compute.ManagedDiskParametersArgs(
                        storage_account_type=compute.StorageAccountTypes.PREMIUM_LRS
                    ),
                ),
            ),
            tags=scope.tags,
            opts=inside,
        )
        compute.VirtualMachineExtension(
            "entra-sign-in",
            resource_group_name=scope.group,
            vm_name=machine.name,
            vm_extension_name="AADSSHLoginForLinux",
            location=scope.location,
            publisher="Microsoft.Azure.ActiveDirectory",
            type="AADSSHLoginForLinux",
            type_handler_version="1.0",
            auto_upgrade_minor_version=True,
            tags=scope.tags,
            opts=inside,
        )
        return machine

    def _build_bastion(self, voice_network: VoiceNetwork) -> None:
        scope, inside = self._scope, pulumi.ResourceOptions(parent=self)
        address = network.PublicIPAddress(
            "bastion",
            resource_group_name=scope.group,
            public_ip_address_name=scope.build_name("bastion"),
            location=scope.location,
            sku=network.PublicIPAddressSkuArgs(name=network.PublicIPAddressSkuName.STANDARD),
            public_ip_allocation_method=network.IPAllocationMethod.STATIC,
            tags=scope.tags,
            opts=inside,
        )
        network.BastionHost(
            "bastion",
            resource_group_name=scope.group,
            bastion_host_name=scope.build_name("bastion"),
            location=scope.location,
            sku=network.SkuArgs(name=network.BastionHostSkuName.STANDARD),
            enable_tunneling=True,
            ip_configurations=[
                network.BastionHostIPConfigurationArgs(
                    name="bastion",
                    subnet=network.SubResourceArgs(id=voice_network.subnet_ids[BASTION_SUBNET_NAME]),
                    public_ip_address=network.SubResourceArgs(id=address.id),
                )
            ],
            tags=scope.tags,
            opts=inside,
        )
