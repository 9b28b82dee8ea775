"""Cost of a deployment: list prices multiplied by the resources in templates and Pulumi programs.

Costs are calculated from the resources that would be deployed, not from the file. The three cases are the minimum
sizes, the maximum sizes, and an expected size between them.
"""
