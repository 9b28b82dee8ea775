"""`python -m tools.azure_types`: generates a table of Azure's own definitions of the deployed types."""
