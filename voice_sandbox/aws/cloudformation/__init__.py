"""CloudFormation for the local AWS. moto's version ignores unknown types, loses exports and cannot delete a VPC."""
