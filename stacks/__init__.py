"""What is deployed, one module per stack."""
