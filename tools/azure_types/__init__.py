"""`python -m tools.azure_types`: generate a table of Azure's definitions of the deployed resource types."""
