"""CloudFormation's pseudo parameters, read once, since each access to `Aws` is a call into jsii's process."""

from aws_cdk import Aws

ACCOUNT_ID = Aws.ACCOUNT_ID
PARTITION = Aws.PARTITION
REGION = Aws.REGION
