"""Exit codes of the `voice` command."""

FAILED = 1
"""An operation failed: a deploy, a drill, a teardown."""

REFUSED = 2
"""The input cannot be deployed: the file is invalid, an option is wrong, or a check fails."""

IN_PROGRESS = 75
"""A rollout is incomplete, and continues without this command; the code is EX_TEMPFAIL of sysexits.h."""

INTERRUPTED = 130
"""Ctrl-C; all started processes have been stopped."""

HELP = "Exit codes: 0 success; 1 operation failed; 2 invalid input; 130 interrupted."
