"""Access to AWS accounts, for commands: sessions, resources of a deployment, and explanations of errors."""
