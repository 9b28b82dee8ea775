"""CDK entry point: `cdk deploy --all -c deployment=deployments/<name>.yaml`."""

from stacks.aws.app import synthesize

synthesize()
