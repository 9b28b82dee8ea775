"""CDK entry point: `cdk deploy --all -c deployment=deployments/<name>.yaml`."""

from voice_stacks.aws.app import synthesize

synthesize()
