"""The typed deployment: what a YAML file under ``deployments/`` says."""
