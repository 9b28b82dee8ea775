"""What is watched on Azure: when engines are scaled, what operators are told, what dashboards draw.

AWS's side is `blueprint.aws`; both draw the panels of `panels`.
"""
