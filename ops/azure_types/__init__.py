"""`python -m ops.azure_types`: read Azure's own definitions of what is deployed there, into a table."""
