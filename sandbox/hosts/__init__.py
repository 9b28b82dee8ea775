"""Hosts that really boot: a deployment's user data in virtual machines, in a network that answers as a VPC does."""
