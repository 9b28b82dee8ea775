"""`voice plan`: what a deployment file would make, and what speaks against it."""
