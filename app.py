"""CDK entry point: `cdk deploy --all -c deployment=deployments/<name>.yaml`."""

import gc

# aws-cdk's modules make hundreds of thousands of objects that live until this short process ends.
gc.disable()

from stacks.aws.app import synthesize  # noqa: E402

synthesize()
