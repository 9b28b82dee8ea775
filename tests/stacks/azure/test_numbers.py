"""Numbers and switches of the Azure section that no setting determines, most with their purpose.

Each is read from the programs' output; changing one requires a change here.
"""

import re
from functools import cache

import pytest

from tests.stacks.aws.test_numbers import numbers, values_at
from tests.stacks.azure.manifests import workloads
from tests.stacks.azure.recorded import cluster, edit_deployment, inputs
from voice_sandbox.azure.graph import Graph, shorten_type

CLUSTER, POOL, POD = "containerservice:ManagedCluster", "containerservice:AgentPool", "spec.template.spec"
DEPLOYMENT, DAEMON, JOB, SCALED = (
    "apps/v1:Deployment",
    "apps/v1:DaemonSet",
    "batch/v1:Job",
    "keda.sh/v1alpha1:ScaledObject",
)
BEHAVIOR = "spec.advanced.horizontalPodAutoscalerConfig.behavior"

TESTED_ELSEWHERE = re.compile(
    r"port$|Port$|replicas$|ReplicaCount$|[cC]ount$|^amount$|durationHours$|retentionInDays$|drainTimeoutInMinutes$"
    r"|^spec\.suspend$|terminationGracePeriodSeconds$|runAs(User|Group)$|fsGroup$|threshold$"
)
"""Values from the deployment file or the contract, which other tests cover."""

NUMBERS: dict[tuple[str, str], tuple[set[object], str]] = {
    # --- Cluster
    (CLUSTER, "agentPoolProfiles.maxPods"): ({110}, "as Kubernetes tests a node; add-ons, the router and jobs"),
    (CLUSTER, "agentPoolProfiles.osDiskSizeGB"): ({128}, "no engine's image comes to these nodes"),
    (CLUSTER, "securityProfile.imageCleaner.intervalHours"): ({168}, "once a week"),
    (POOL, "maxPods"): ({50}, "a few engines and a dozen agents; AKS reserves memory for each"),
    (POOL, "osDiskSizeGB"): ({256}, "the images of engines, of 25 GiB and more"),
    (POOL, "spotMaxPrice"): ({-1}, "as much as on-demand: evicted for capacity only"),
    ("containerservice:MaintenanceConfiguration", "maintenanceWindow.schedule.weekly.intervalWeeks"): ({1}, "weekly"),
    ("compute:VirtualMachine", "storageProfile.osDisk.diskSizeGB"): ({256}, "images of 30 GiB are built here"),
    ("containerregistry:Registry", "policies.retentionPolicy.days"): ({90}, "a replaced build has no tag"),
    ("keyvault:Vault", "properties.softDeleteRetentionInDays"): ({90}, "the most that Azure offers"),
    ("network:NatGateway", "idleTimeoutInMinutes"): ({10}, "a download that pauses for minutes; Azure's default is 4"),
    ("network:NetworkSecurityGroup", "securityRules.priority"): (
        {100, 110, 120, 130, 4096}, "what is denied comes behind what is let in"),
    ("alertsmanagement:PrometheusRuleGroup", "rules.severity"): ({1, 2}, "errors and warnings"),
    ("monitor:MetricAlert", "severity"): ({2}, "without callers there is only the alert on ports"),
    # --- Pods
    (DEPLOYMENT, f"{POD}.containers.lifecycle.preStop.sleep.seconds"): (
        {15, 38}, "until no request comes: kube-proxy for the router, AKS's cache of DNS for engines"),
    (DEPLOYMENT, f"{POD}.containers.startupProbe.periodSeconds"): ({5, 10}, "router; engine"),
    (DEPLOYMENT, f"{POD}.containers.startupProbe.failureThreshold"): ({24, 240}, "router two minutes, engine forty"),
    (DEPLOYMENT, f"{POD}.containers.startupProbe.timeoutSeconds"): ({5}, "a busy engine answers late"),
    (DEPLOYMENT, f"{POD}.containers.livenessProbe.periodSeconds"): ({10, 15}, "router, a minute; engine, two"),
    (DEPLOYMENT, f"{POD}.containers.livenessProbe.failureThreshold"): ({6, 8}, "a restart costs a cold start"),
    (DEPLOYMENT, f"{POD}.containers.livenessProbe.timeoutSeconds"): ({5}, "a busy engine answers late"),
    (DEPLOYMENT, f"{POD}.containers.readinessProbe.periodSeconds"): ({5}, "with the next: ten seconds"),
    (DEPLOYMENT, f"{POD}.containers.readinessProbe.failureThreshold"): ({2}, "one slow answer moves nobody"),
    (DEPLOYMENT, f"{POD}.containers.readinessProbe.timeoutSeconds"): ({5}, "a busy engine answers late"),
    (DEPLOYMENT, f"{POD}.initContainers.startupProbe.periodSeconds"): ({5}, "sidecars of a cell"),
    (DEPLOYMENT, f"{POD}.initContainers.startupProbe.failureThreshold"): ({120}, "ten minutes"),
    (DEPLOYMENT, f"{POD}.initContainers.startupProbe.timeoutSeconds"): ({5}, "as of engines"),
    (DEPLOYMENT, f"{POD}.initContainers.livenessProbe.periodSeconds"): ({10}, "as of engines"),
    (DEPLOYMENT, f"{POD}.initContainers.livenessProbe.failureThreshold"): ({6}, "as of engines"),
    (DEPLOYMENT, f"{POD}.initContainers.livenessProbe.timeoutSeconds"): ({5}, "as of engines"),
    (DEPLOYMENT, f"{POD}.initContainers.readinessProbe.periodSeconds"): ({5, 10}, "front; P/D router"),
    (DEPLOYMENT, f"{POD}.initContainers.readinessProbe.failureThreshold"): ({2, 3}, "front; P/D router"),
    (DEPLOYMENT, f"{POD}.initContainers.readinessProbe.timeoutSeconds"): ({5}, "as of engines"),
    (DEPLOYMENT, f"{POD}.topologySpreadConstraints.maxSkew"): ({1}, "as even as can be"),
    (DEPLOYMENT, "spec.strategy.rollingUpdate.maxSurge"): ({0, 1}, "of what has no spare node, none"),
    (DEPLOYMENT, "spec.strategy.rollingUpdate.maxUnavailable"): ({0, 1}, "of what has a spare node, none"),
    (DAEMON, f"{POD}.containers.livenessProbe.periodSeconds"): ({30}, "with the next: two minutes and a half"),
    (DAEMON, f"{POD}.containers.livenessProbe.failureThreshold"): ({5}, "DCGM is slow while it starts"),
    (DAEMON, f"{POD}.containers.livenessProbe.timeoutSeconds"): ({5}, "as of engines"),
    (DAEMON, f"{POD}.containers.readinessProbe.periodSeconds"): ({15}, "with the next: 45 seconds"),
    (DAEMON, f"{POD}.containers.readinessProbe.failureThreshold"): ({3}, "as Kubernetes' default"),
    (DAEMON, f"{POD}.containers.readinessProbe.timeoutSeconds"): ({5}, "as of engines"),
    (JOB, "spec.backoffLimit"): ({4}, "a hub may fail for minutes"),
    (JOB, "spec.activeDeadlineSeconds"): ({7200}, "45 GiB take 8 minutes at 100 MB/s, in all attempts"),
    ("policy/v1:PodDisruptionBudget", "spec.maxUnavailable"): ({1, 8}, "one; without a surge node, those of a node"),
    # --- Scaling
    (SCALED, "spec.pollingInterval"): ({30}, "a spike is seen in half a minute"),
    (SCALED, "spec.fallback.failureThreshold"): ({4}, "after two minutes the replicas stay as they are"),
    (SCALED, "spec.cooldownPeriod"): ({1800}, "half an hour: what goes has to be started anew"),
    (SCALED, f"{BEHAVIOR}.scaleUp.stabilizationWindowSeconds"): ({0}, "at once"),
    (SCALED, f"{BEHAVIOR}.scaleUp.policies.periodSeconds"): ({60}, "each minute"),
    (SCALED, f"{BEHAVIOR}.scaleUp.policies.value"): ({2, 100}, "two replicas, or as many as there are, percent"),
    (SCALED, f"{BEHAVIOR}.scaleDown.stabilizationWindowSeconds"): ({1800}, "as the cool-down"),
    (SCALED, f"{BEHAVIOR}.scaleDown.policies.periodSeconds"): ({600}, "a drain fits in"),
    (SCALED, f"{BEHAVIOR}.scaleDown.policies.value"): ({1}, "one by one"),
    # --- What Azure Monitor's agent takes of a sample
    ("azmonitoring.coreos.com/v1:PodMonitor", "spec.labelLimit"): ({63}, "Azure drops series with more"),
    ("azmonitoring.coreos.com/v1:PodMonitor", "spec.labelNameLengthLimit"): ({511}, "and longer ones"),
    ("azmonitoring.coreos.com/v1:PodMonitor", "spec.labelValueLengthLimit"): ({1023}, "and longer ones"),
}  # fmt: skip

ENABLED_SETTINGS = frozenset(
    {
        ("alertsmanagement:PrometheusRuleGroup", "enabled"), ("alertsmanagement:PrometheusRuleGroup", "rules.enabled"),
        ("alertsmanagement:PrometheusRuleGroup", "rules.resolveConfiguration.autoResolved"),
        ("compute:VirtualMachine", "networkProfile.networkInterfaces.primary"),
        ("compute:VirtualMachine", "osProfile.linuxConfiguration.disablePasswordAuthentication"),
        ("compute:VirtualMachine", "securityProfile.encryptionAtHost"),
        ("compute:VirtualMachine", "securityProfile.uefiSettings.secureBootEnabled"),
        ("compute:VirtualMachine", "securityProfile.uefiSettings.vTpmEnabled"),
        ("compute:VirtualMachineExtension", "autoUpgradeMinorVersion"),
        ("consumption:Budget", "notifications.actual-above-80.enabled"),
        ("consumption:Budget", "notifications.forecasted-above-100.enabled"),
        (CLUSTER, "aadProfile.enableAzureRBAC"), (CLUSTER, "aadProfile.managed"), (CLUSTER, "enableRBAC"),
        (CLUSTER, "addonProfiles.azureKeyvaultSecretsProvider.enabled"), (CLUSTER, "addonProfiles.omsagent.enabled"),
        (CLUSTER, "agentPoolProfiles.enableAutoScaling"), (CLUSTER, "agentPoolProfiles.enableEncryptionAtHost"),
        (CLUSTER, "apiServerAccessProfile.enablePrivateCluster"), (CLUSTER, "azureMonitorProfile.metrics.enabled"),
        (CLUSTER, "disableLocalAccounts"), (CLUSTER, "oidcIssuerProfile.enabled"),
        (CLUSTER, "securityProfile.imageCleaner.enabled"), (CLUSTER, "securityProfile.workloadIdentity.enabled"),
        (CLUSTER, "workloadAutoScalerProfile.keda.enabled"),
        (CLUSTER, "workloadAutoScalerProfile.verticalPodAutoscaler.enabled"),
        (POOL, "enableAutoScaling"), (POOL, "enableEncryptionAtHost"),
        ("core/v1:ConfigMap", "immutable"),
        ("keyvault:Vault", "properties.enablePurgeProtection"), ("keyvault:Vault", "properties.enableSoftDelete"),
        ("keyvault:Vault", "properties.enableRbacAuthorization"),
        ("kubernetesconfiguration:Extension", "autoUpgradeMinorVersion"),
        ("monitor:ActionGroup", "emailReceivers.useCommonAlertSchema"), ("monitor:ActionGroup", "enabled"),
        ("monitor:MetricAlert", "autoMitigate"), ("monitor:MetricAlert", "enabled"),
        ("monitor:DataCollectionRule",
         "dataSources.extensions.extensionSettings.dataCollectionSettings.enableContainerLogV2"),
        ("monitor:DiagnosticSetting", "logs.enabled"),
        ("network:BastionHost", "enableTunneling"),
        ("operationalinsights:Workspace", "features.disableLocalAuth"),
        ("operationalinsights:Workspace", "features.enableLogAccessUsingOnlyResourcePermissions"),
        ("storage.k8s.io/v1:StorageClass", "allowVolumeExpansion"),
        (DEPLOYMENT, f"{POD}.securityContext.runAsNonRoot"), (JOB, f"{POD}.securityContext.runAsNonRoot"),
        (DEPLOYMENT, f"{POD}.shareProcessNamespace"),  # of a cell, whose engines access each other's memory
        (DAEMON, f"{POD}.containers.securityContext.privileged"),  # of the device plugin
        *((kind, f"{POD}.{group}.securityContext.readOnlyRootFilesystem")
          for kind, group in ((DEPLOYMENT, "containers"), (DEPLOYMENT, "initContainers"), (DAEMON, "containers"),
                              (JOB, "containers"))),
        *((kind, f"{POD}.{group}.volumeMounts.readOnly")
          for kind, group in ((DEPLOYMENT, "containers"), (DEPLOYMENT, "initContainers"), (DAEMON, "containers"))),
    }
)  # fmt: skip
DISABLED_SETTINGS = frozenset(
    {
        (DEPLOYMENT, f"{POD}.automountServiceAccountToken"),
        ("containerregistry:Registry", "adminUserEnabled"), ("containerregistry:Registry", "anonymousPullEnabled"),
        (CLUSTER, "agentPoolProfiles.enableNodePublicIP"), (POOL, "enableNodePublicIP"),
        (CLUSTER, "apiServerAccessProfile.disableRunCommand"),
        (CLUSTER, "apiServerAccessProfile.enablePrivateClusterPublicFQDN"),
        ("core/v1:ServiceAccount", "automountServiceAccountToken"),
        *(("keyvault:Vault", f"properties.enabledFor{what}") for what in
          ("Deployment", "DiskEncryption", "TemplateDeployment")),
        *(("network:BastionHost", what) for what in
          ("disableCopyPaste", "enableFileCopy", "enableIpConnect", "enableKerberos", "enablePrivateOnlyBastion",
           "enableSessionRecording", "enableShareableLink")),
        ("network:Subnet", "defaultOutboundAccess"),
        ("network:VirtualNetwork", "enableDdosProtection"), ("network:VirtualNetwork", "enableVmProtection"),
        ("privatedns:VirtualNetworkLink", "registrationEnabled"),
        *((kind, f"{POD}.enableServiceLinks") for kind in (DEPLOYMENT, DAEMON, JOB)),
        *((kind, f"{POD}.automountServiceAccountToken") for kind in (DAEMON, JOB)),
        *((kind, f"{POD}.{group}.securityContext.allowPrivilegeEscalation")
          for kind, group in ((DEPLOYMENT, "containers"), (DEPLOYMENT, "initContainers"), (DAEMON, "containers"),
                              (JOB, "containers"))),
    }
)  # fmt: skip
TEXTS = [
    (CLUSTER, "cluster", "agentPoolProfiles.upgradeSettings.maxSurge", {"33%"}, "of three nodes, one"),
    (
        CLUSTER,
        "cluster",
        "addonProfiles.azureKeyvaultSecretsProvider.config.rotationPollInterval",
        {"2m"},
        "restarted pods read the value of the last poll",
    ),
    (CLUSTER, "cluster", "networkProfile.dnsServiceIP", {"10.61.0.10"}, "the tenth of the services"),
    (POOL, "cells", "upgradeSettings.maxUnavailable", {"1"}, "no spare node: one at a time is away"),
    (POOL, "cells", "upgradeSettings.maxSurge", {"0"}, "a surge node needs quota and a free machine"),
    (POOL, "h100", "upgradeSettings.maxUnavailable", {"0"}, "a spare node first"),
    ("dashboard:Grafana", "grafana", "properties.grafanaMajorVersion", {"12"}, "Azure refuses 11"),
    (DEPLOYMENT, "router", f"{POD}.containers.resources.limits.cpu", {"2"}, "it passes bytes on"),
    (DEPLOYMENT, "router", f"{POD}.containers.resources.limits.memory", {"4096Mi"}, ""),
    (DEPLOYMENT, "voxtral", f"{POD}.initContainers.resources.limits.memory", {"512Mi"}, "the check of the topology"),
    (DEPLOYMENT, "voxtral", f"{POD}.volumes.emptyDir.sizeLimit", {"8192Mi"}, "what programs write for themselves"),
    (DAEMON, "device-plugin", f"{POD}.containers.resources.limits.memory", {"256Mi"}, ""),
    (DAEMON, "gpu-metrics", f"{POD}.containers.resources.limits.memory", {"1024Mi"}, ""),
    (DAEMON, "gpu-metrics", f"{POD}.containers.resources.limits.cpu", {"250m"}, ""),
    (DAEMON, "gpu-metrics", f"{POD}.containers.env.valueFrom.fieldRef.fieldPath", {"spec.nodeName"}, "label hostname"),
]


@cache
def graphs() -> tuple[Graph, Graph]:
    text = edit_deployment({})
    return cluster(text), workloads(text)


def test_every_number_of_the_programs_is_listed() -> None:
    found: dict[tuple[str, str], set[object]] = {}
    for graph in graphs():
        for resource in graph.iter_managed_resources():
            for place, value in numbers(inputs(resource)):
                if not TESTED_ELSEWHERE.search(place):
                    found.setdefault((shorten_type(resource.type), place), set()).add(value)
    stated: dict[tuple[str, str], set[object]] = {key: values for key, (values, _) in NUMBERS.items()}
    for keys, values in ((ENABLED_SETTINGS, {True}), (DISABLED_SETTINGS, {False})):
        stated |= {key: set[object](values) for key in keys}
    assert found == stated


@pytest.mark.parametrize(("kind", "name", "path", "values", "reason"), TEXTS, ids=lambda part: str(part)[:40])
def test_a_quantity_in_text_is_parsed(kind: str, name: str, path: str, values: set[str], reason: str) -> None:
    (resource,) = (each for graph in graphs() for each in graph.find_resources_of_type(kind) if each.name == name)
    assert set(values_at(inputs(resource), path)) == values, reason
