"""Local AWS emulator: a moto server whose CloudFormation deploys real CDK templates.

* `server` is the program. `process` starts it as a child process and provides its endpoint.
* `cloudformation` deploys, updates and deletes stacks as AWS does: in dependency order, with events, rollback,
  replacement, retention, exports and dynamic references. It calls the services through their public APIs.
* `adapters` contains a table with the API calls that create, change and delete resources of each type.
* `patches` add features that moto's services lack or store incorrectly, so that boto3 shows what was deployed.
"""
