"""The contract between provisioning and programs: names that both must spell identically.

User data, task definitions, security groups, alarms and dashboards are rendered from these tables, and the programs in
``images/`` read the environment that they define. This package depends on no cloud and no other package.
"""
