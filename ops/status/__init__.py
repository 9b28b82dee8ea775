"""What runs of a deployment, and what differs from its file: read from the account, never changed."""
