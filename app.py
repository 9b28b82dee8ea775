"""Entry point of the CDK: `cdk deploy --all -c deployment=deployments/<name>.yaml`."""

import gc

from voice_stacks.node import start_jsii

# aws-cdk's modules create hundreds of thousands of objects that live until this short process exits.
gc.disable()
start_jsii()

from voice_stacks.aws.app import synthesize  # noqa: E402

synthesize()
