"""Exit codes of the `voice` command."""

FAILED = 1
"""Something was tried and did not work: a deploy, a drill, a teardown."""

REFUSED = 2
"""The input cannot be deployed: a malformed file, a wrong option, a check that refuses."""

INTERRUPTED = 130
"""Ctrl-C; everything that was started has been stopped."""

HELP = "Exit codes: 0 all is well; 1 something was tried and failed; 2 the input is refused; 130 interrupted."
