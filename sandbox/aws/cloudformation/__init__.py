"""CloudFormation for the local AWS; moto's own skips unknown types, drops exports and cannot delete a VPC."""
