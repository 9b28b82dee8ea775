"""`voice prune`: find, drain and delete stacks that were removed from the deployment file."""
