"""`voice schema`: the JSON schema of deployment files."""
