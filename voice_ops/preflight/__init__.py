"""`voice preflight`: check an account, its quotas and its region before a deploy.

* `report` contains the results. `questions` runs checks, and converts errors of a cloud to results.
* `models` checks licences and weights. `aws` and `azure` query the clouds, and import the SDKs only when needed.
"""
