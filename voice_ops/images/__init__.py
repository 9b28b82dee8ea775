"""`voice images`: descriptions of the images, commands to publish them, and local builds."""
