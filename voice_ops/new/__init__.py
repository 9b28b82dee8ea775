"""`voice new`: a platform team's own repository, which uses this package as a dependency."""
