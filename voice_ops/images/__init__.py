"""`voice images`: descriptions of the images, commands that publish images, and local builds."""
