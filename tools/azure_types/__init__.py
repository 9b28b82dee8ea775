"""`python -m tools.azure_types`: generate a table of Azure's definitions for the deployed resource types."""
