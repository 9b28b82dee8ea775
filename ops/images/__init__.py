"""`voice images`: what the images are, how each gets into a registry, and a build of those that need none."""
