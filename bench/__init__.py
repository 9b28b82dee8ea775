"""Benchmarks. Each measured claim of the documentation has a command that measures it."""
