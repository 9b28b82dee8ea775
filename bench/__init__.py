"""Benchmarks. Each measured claim in the documentation has a command that measures it."""
