"""What a deployment to Azure is made of: names, the contract inside the cluster, metrics, placement on nodes."""
