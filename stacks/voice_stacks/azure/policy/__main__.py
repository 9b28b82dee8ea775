"""Entry point of the pack: `pulumi preview --policy-pack ../policy` in a project's folder, or the local engine."""

from pulumi_policy import EnforcementLevel, PolicyPack

from voice_stacks.azure.policy.pack import policies

PolicyPack(name="voice-azure", policies=policies(), enforcement_level=EnforcementLevel.MANDATORY)
