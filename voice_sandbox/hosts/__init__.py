"""Hosts that actually boot and run a deployment's user data, in virtual machines in a simulated VPC."""
