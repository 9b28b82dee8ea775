"""What can go wrong in a run of a Pulumi program; every text is for the operator."""

FAILURE_MARK = "voice-serve: the program failed:"
"""Line of a program's stderr after which its error stands."""


class EngineError(Exception):
    """A program was refused or failed; the text says what, where and, where it can, the remedy."""


class ProjectError(EngineError):
    """A project's folder or its Pulumi.yaml files cannot be used."""


class ProgramError(EngineError):
    """The program raised, or did not end in time."""


class ResourceError(EngineError):
    """The engine refused a resource or a call of a program, as a provider would."""


class OrderError(EngineError):
    """A resource would be created, called upon or deleted out of order; the text names both resources."""


class PolicyPackError(EngineError):
    """A policy pack did not start or did not answer."""
