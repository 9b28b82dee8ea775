"""The picture of a deployment, from its CloudFormation templates: what exists, who talks to whom, what scales."""
