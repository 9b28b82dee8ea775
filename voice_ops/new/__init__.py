"""`voice new`: create a repository that depends on this package, for a platform team."""
