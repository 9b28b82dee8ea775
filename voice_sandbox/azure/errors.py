"""Errors in a run of a Pulumi program, with messages for the operator."""

FAILURE_MARKER = "voice-serve: the program failed:"
"""Line in a program's stderr that precedes its error."""


class EngineError(Exception):
    """A program was rejected or failed. The message contains the problem, its location and, if possible, the remedy."""


class ProjectError(EngineError):
    """A project's folder or its Pulumi.yaml files cannot be used."""


class ProgramError(EngineError):
    """The program raised an exception, or did not end in time."""


class ResourceError(EngineError):
    """The engine rejected a resource or a call from a program, as a provider would."""


class DependencyError(EngineError):
    """A resource would be created, used or deleted out of order. The message contains both resources."""


class PolicyPackError(EngineError):
    """A policy pack did not start or did not respond."""
