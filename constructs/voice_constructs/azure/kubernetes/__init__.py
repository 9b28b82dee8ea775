"""Kubernetes objects of the cluster."""
