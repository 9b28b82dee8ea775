"""The policy pack from the installed voice-serve: `--policy-pack ../policy` in a project's folder."""

from pathlib import Path

from pulumi_policy import EnforcementLevel, PolicyPack

from voice_stacks.azure.policy.pack import policies

PolicyPack("voice-azure", policies(Path(__file__).parent), EnforcementLevel.MANDATORY)
