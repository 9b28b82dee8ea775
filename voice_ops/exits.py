"""Exit codes of the `voice` command."""

FAILED = 1
"""An operation failed, such as a deploy, a drill or a teardown."""

INVALID_INPUT = 2
"""The input is rejected: the file or an option is invalid, or a check fails."""

IN_PROGRESS = 75
"""A rollout is incomplete, and continues without this command. The code is EX_TEMPFAIL from sysexits.h."""

INTERRUPTED = 130
"""The operator pressed Ctrl-C, and all started processes have been stopped."""

EXIT_CODES_HELP = "Exit codes: 0 success; 1 operation failed; 2 invalid input; 130 interrupted."
