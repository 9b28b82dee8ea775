"""Timeouts and retries for requests to the AWS and Azure APIs.

An endpoint that accepts a connection and never responds is reported after ``MAX_ATTEMPTS * READ_TIMEOUT_S`` plus the
pauses between attempts, which is 47 s. The SDKs' own defaults are 60 s and up to five attempts for AWS, and 300 s and
eleven attempts for Azure.
"""

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 15
MAX_ATTEMPTS = 3
"""Maximum number of attempts, including the first. For AWS, ``AWS_MAX_ATTEMPTS`` overrides the number."""
