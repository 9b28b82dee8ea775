"""The contract between what provisions and what runs: names that both sides must spell alike.

User data, task definitions, security groups, alarms and dashboards are rendered from these tables, and the programs in
``images/`` read the environment that they describe. Nothing here depends on a cloud, nor on any package.
"""
