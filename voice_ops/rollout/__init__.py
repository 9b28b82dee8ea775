"""`voice rollout`: show the hosts that a deploy replaces, and deploy with probes and rollback."""
