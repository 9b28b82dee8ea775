"""Publishes what a host's programs and accelerators tell, to CloudWatch and to Prometheus."""
