"""The Azure suite: the Pulumi projects `cluster` and `workloads`, and the policies for both."""
