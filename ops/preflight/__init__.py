"""`voice preflight`: what an account, its quotas and its region say to a deployment file, before the deploy.

* `report` holds the answers; `questions` asks, and turns refusals of a cloud into answers.
* `models` asks about licences and weights; `aws` and `azure` ask their clouds and import their SDKs when needed.
"""
