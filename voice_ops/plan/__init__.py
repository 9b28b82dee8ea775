"""`voice plan`: check a deployment file, and show its sizes and problems."""
