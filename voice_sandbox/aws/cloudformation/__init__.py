"""CloudFormation of the local AWS; moto's own ignores unknown types, loses exports and cannot delete a VPC."""
