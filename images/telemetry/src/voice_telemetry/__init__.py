"""Publishes the metrics of a host's programs and accelerators to CloudWatch and Prometheus."""
