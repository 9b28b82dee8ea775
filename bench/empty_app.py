"""What `cdk init` makes, less its comments: what bench/cli.py compares a synth with."""

from aws_cdk import App, Stack

app = App(builtin_cloud_formation_validation=False, analytics_reporting=False)
Stack(app, "Empty")
app.synth()
