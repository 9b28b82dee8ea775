"""`voice calibrate`: how many calls a host carries, measured and written into the deployment file."""
