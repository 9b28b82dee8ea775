"""The Azure suite: two Pulumi projects, `cluster` and `workloads`, and the policies that both have to pass."""
