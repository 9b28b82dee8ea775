"""Rehearsals of a deployment file on the local clouds, from deployment through verification and drills to teardown."""
