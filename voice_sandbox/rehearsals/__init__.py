"""Rehearsals of a deployment file on the local clouds: deployment, verification, drills, outages, teardown."""
