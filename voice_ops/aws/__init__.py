"""Access to AWS accounts, for commands: sessions, resources in a deployment, and explanations of errors."""
