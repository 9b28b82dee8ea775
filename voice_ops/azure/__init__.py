"""Access to the AKS cluster of a deployment, for commands that read its workloads."""
