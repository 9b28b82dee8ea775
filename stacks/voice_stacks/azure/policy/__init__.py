"""The policy pack for both Pulumi projects, with rules for the resources that the programs create."""
