"""Taking a deployment down: what goes, what stays and what that costs, and what was left behind."""
