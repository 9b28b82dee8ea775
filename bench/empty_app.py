"""The output of `cdk init` without comments, with which bench/cli.py compares a synth."""

from aws_cdk import App, Stack

app = App(builtin_cloud_formation_validation=False, analytics_reporting=False)
Stack(app, "Empty")
app.synth()
