"""The typed model of the YAML files under ``deployments/``."""
