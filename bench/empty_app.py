"""An empty CDK app, as `cdk init` creates it. bench/cli.py compares other synths with a synth of this app."""

from aws_cdk import App, Stack

app = App(builtin_cloud_formation_validation=False, analytics_reporting=False)
Stack(app, "Empty")
app.synth()
