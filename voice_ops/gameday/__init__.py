"""`voice gameday`: rehearse failures of a deployment."""
