"""Azure parts of a deployment: names, the contract inside the cluster, metrics, NUMA placement."""
