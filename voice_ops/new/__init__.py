"""`voice new`: create a repository for a platform team, which depends on this package."""
