"""The Pulumi project voice-workloads from the installed voice-serve, for the file in the stack's configuration."""

import runpy

runpy.run_module("voice_stacks.azure.workloads", run_name="__main__")
