"""Access to AWS accounts: clients, resources by tag, and explanations of errors."""
