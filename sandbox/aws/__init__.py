"""The local AWS: a moto server whose CloudFormation deploys real CDK templates.

* `server` is the process; `process` starts it as a child and says how to reach it.
* `cloudformation` deploys, updates and deletes stacks as AWS does: in dependency order, with events, rollback,
  replacement, retention, exports and dynamic references. Like AWS's, it is a client of the services' own APIs.
* `adapters` hold a table that says, per resource type, which API calls create, change and delete it.
* `mends` add what moto's services lack or keep wrongly, so that boto3 shows what was deployed.
"""
