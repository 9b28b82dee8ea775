"""CloudFormation's pseudo parameters, read once: each look at `Aws` is a call into jsii's process."""

from aws_cdk import Aws

ACCOUNT_ID = Aws.ACCOUNT_ID
PARTITION = Aws.PARTITION
REGION = Aws.REGION
