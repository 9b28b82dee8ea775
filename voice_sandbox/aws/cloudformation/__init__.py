"""CloudFormation of the local AWS, since moto's ignores unknown types, loses exports and cannot delete a VPC."""
