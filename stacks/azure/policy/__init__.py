"""The policy pack for both Pulumi projects: rules over what the programs emit, and their wrappers."""
