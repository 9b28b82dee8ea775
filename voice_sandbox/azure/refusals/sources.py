"""Base URLs for sources in the tables."""

LEARN_URL = "https://learn.microsoft.com/azure"
AZURERM_URL = "https://github.com/hashicorp/terraform-provider-azurerm"
_REVISION_URL = f"{AZURERM_URL}/blob/69697b7fe6a923fc89e88f386bc95c3ed1ee2ec6"
AZURERM_FILES, AZURERM_DOCS = f"{_REVISION_URL}/internal/services", f"{_REVISION_URL}/website/docs/r"
"""The Terraform provider's validation and notes, which prevent requests that the services reject."""
