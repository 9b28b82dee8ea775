"""`voice rollout`: the hosts that a deploy replaces, and a deploy with probes and rollback."""
