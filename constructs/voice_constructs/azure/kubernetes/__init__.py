"""What runs on the cluster, as Kubernetes objects."""
