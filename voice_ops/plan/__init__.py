"""`voice plan`: check a deployment file and size it."""
