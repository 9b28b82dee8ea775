"""`voice schema`: print the JSON schema of deployment files."""
