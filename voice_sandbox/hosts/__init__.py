"""Hosts that actually boot: a deployment's user data in virtual machines, in a network that simulates a VPC."""
