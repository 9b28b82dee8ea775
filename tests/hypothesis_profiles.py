"""Profiles of Hypothesis for the tests of ``tests`` and of ``images``.

The examples are fixed, so that a failure is caused by the change. `make test-search` searches for new ones each night;
a counterexample becomes an `@example` or a separate case. A busy machine would exceed a deadline.

Hypothesis also draws constants from loaded modules, so some examples depend on which tests are collected: reproduce a
failure with the same selection, such as `pytest -m nightly -k <test>` without a path.
"""

import os

from hypothesis import settings

settings.register_profile("change", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, print_blob=True, max_examples=500)
settings.load_profile("search" if os.environ.get("VOICE_SEARCH") else "change")
