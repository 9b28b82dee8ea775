"""`voice calibrate`: measure the calls per host, and write them into the deployment file."""
