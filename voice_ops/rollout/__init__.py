"""`voice rollout`: the replacements by a deploy, and a deploy with probes and rollback."""
