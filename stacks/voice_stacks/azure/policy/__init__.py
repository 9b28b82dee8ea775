"""The policy pack of both Pulumi projects, with rules for the resources that the programs create."""
