"""Timeouts and retries of requests to the clouds' APIs, both for boto3 and for Azure's SDKs.

An endpoint that accepts a connection and never responds is reported after ``ATTEMPTS * READ_S`` and the pauses between
attempts: 47 s. The SDKs' own defaults are 60 s and up to five attempts, and for Azure 300 s and eleven.
"""

CONNECT_S = 5
READ_S = 15
ATTEMPTS = 3
"""Maximum number of attempts, including the first. ``AWS_MAX_ATTEMPTS`` and ``AWS_RETRY_MODE`` override it for AWS."""
