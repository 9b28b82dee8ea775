"""Kubernetes objects in the cluster."""
