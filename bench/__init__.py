"""Benchmarks, with a command for each measured claim."""
