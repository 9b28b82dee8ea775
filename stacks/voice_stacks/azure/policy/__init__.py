"""The policy pack of both Pulumi projects: rules for the resources of the programs, and their wrappers."""
