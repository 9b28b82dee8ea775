"""What the Azure half once did wrong, by the lines of the issue that asked for each mend: undone, its tests fail."""

from tests.mutants.named import Named

CHECKS = ("tests/blueprint/checks/test_checks.py",)
SIZING = ("tests/blueprint/sizing",)
COST = ("tests/ops/cost/test_estimate.py",)
PREFLIGHT = ("tests/ops/preflight/test_azure.py",)
EDITS = ("tests/stacks/azure/test_cluster_edits.py",)
ACCESS = ("tests/stacks/azure/test_cluster_access.py",)
ALERTS = ("tests/contract/test_azure_alerts.py",)
ENGINES = ("tests/stacks/azure/test_workloads_engines.py",)
TOPOLOGY = ("tests/stacks/azure/test_workloads_topology_check.py",)
TRANSPORT = ("tests/stacks/azure/test_workloads_transport_check.py",)
TOKEN = ("tests/stacks/azure/test_workloads_hub_token.py",)
REHEARSAL = ("tests/sandbox/azure/test_rehearsal.py",)
PLANTED = ("tests/stacks/azure/policy/test_mutations.py",)
PATH = ("tests/test_azure_path.py",)

AZURE = "constructs/voice_constructs/azure"
DRAWN = "blueprint/observability/azure_dashboards.py"
PACK = "stacks/azure/policy"
PODS = f"{AZURE}/kubernetes"
OF_CHECKS = "blueprint/checks"
ASKED = "ops/preflight/azure"

UNDONE = (
    # 1, reachable by the operator
    Named("1 kubeconfig waits for a person", f"{AZURE}/cluster.py", '"azurecli"', '"devicecode"', ACCESS),
    Named("1 nobody signs in to the jump host", f"{AZURE}/jump_host.py", "entra-sign-in", "entra-sign-out", ACCESS),
    Named("1 images are pushed where no push gets in", "ops/images/commands.py", '"acr", "import"', '"acr", "login"',
          PATH),
    Named("1 the guide asks agents at a name that nobody has", "docs/guides/azure.md", "https://agent.", "https://agents.",
          PATH),
    # 2, upgrades
    Named("2 production is not protected", f"{AZURE}/scope.py", "keep=True, protected=True",
          "keep=True, protected=False", ("tests/stacks/azure/test_cluster_surface.py",)),
    Named("2 a pool's size changes in place", "sandbox/azure/replacements.yaml", "[vmSize]", "[spotMaxPrice]", EDITS),
    Named("2 the pods' range changes in place", "sandbox/azure/replacements.yaml", "      - networkProfile.podCidr\n",
          "", EDITS),
    Named("2 a private cluster becomes public in place", "sandbox/azure/replacements.yaml",
          "[apiServerAccessProfile.enablePrivateCluster]", "[nodeResourceGroup]", EDITS),
    Named("2 a network's range changes in place", "sandbox/azure/replacements.yaml", "[addressSpace]", "[tags]", EDITS),
    Named("2 a replaced pool is no outage", "sandbox/azure/outages.py", '"containerservice:AgentPool":',
          '"x:AgentPool":',
          EDITS),
    Named("2 nobody knows what is away without the store", "sandbox/azure/outages.py",
          '("redisenterprise:Database", "redisenterprise:RedisEnterprise")', '("redisenterprise:Database",)', EDITS),
    Named("2 a preview of an outage exits with 0", "ops/preview/command.py", "    refuse(away)\n", "", REHEARSAL),
    Named("2 a plan sees no outage on Azure", "ops/plan/release.py", "away += unaccepted(changes, accepted)",
          "unaccepted(changes, accepted)", REHEARSAL),
    # 3, what is deployed can run
    Named("3 every driver runs every engine", f"{OF_CHECKS}/azure_models.py", '{"A10": "GRID 570.211.01"}', "{}",
          CHECKS),
    Named("3 one bound for every pool", "blueprint/file/model/azure.py", "if bounds.pool == pool), self.replicas)",
          'if bounds.pool == ""), self.replicas)', CHECKS),
    Named("3 plan forgets what KEDA keeps", "blueprint/engines/sizing/service.py", "max(place.bounds.min, needed)",
          "needed", SIZING),
    Named("3 a rollout takes no room", f"{OF_CHECKS}/azure_pools.py", "pod.max_replicas + pod.surge",
          "pod.max_replicas", CHECKS),
    Named("3 one node is emptied unseen", f"{OF_CHECKS}/azure_pools.py", "== 1 and not pool.surge_nodes",
          "== 0 and not pool.surge_nodes", CHECKS),
    Named("3 upgrades at any time", f"{AZURE}/cluster.py", "start_time=window.start", 'start_time="00:00"',
          ("tests/stacks/azure/test_cluster.py",)),
    # 4, the cell
    Named("4 peers are not asked for", f"{PODS}/files/check_topology.py", '"absent") != "OK"]', '"OK") != "OK"][:0]',
          TOPOLOGY),
    Named("4 the file's choice is not heard", f"{PODS}/files/check_topology.py", "if expected.refuse_without_peers:",
          "if True:", TOPOLOGY),
    Named("4 a slow transport is taken", f"{PODS}/files/check_transport.py", '"" if choice.is_fast else',
          '"" if True else',
          TRANSPORT),
    Named("4 a silent transport is taken", f"{PODS}/files/check_transport.py", "if not self._chosen.wait(GRACE_S):",
          "if False:", TRANSPORT),
    Named("4 nobody is warned of a cell", f"{OF_CHECKS}/azure_topology.py",
          "        if pod.is_cell:\n            yield Violation(\n                pod.place.at(\"kind\")",
          "        if not pod:\n            yield Violation(\n                pod.place.at(\"kind\")", CHECKS),
    # 5, cost
    Named("5 a sum without its dearest nodes is the whole", "ops/cost/report.py",
          '"usd_per_month_at_least" if estimate.hosts else ', "", COST),
    Named("5 the table's sum is the whole", "ops/cost/report.py", '"at least" if estimate.hosts else "together"',
          '"together"', COST),
    Named("5 several halves are the whole", "ops/cost/report.py", '"at least " * any(each.hosts for each in estimates)',
          '""', COST),
    Named("5 no range of a size without a price", "ops/cost/estimate.py", "use.amount * max(usd)",
          "use.amount * min(usd)", COST),
    Named("5 an audio hour for the part that is known", "ops/cost/report.py",
          "None if estimate.hosts else estimate.audio.usd_per_hour", "estimate.audio.usd_per_hour", COST),
    Named("5 the table's audio hour is the whole", "ops/cost/report.py", '", at least" if estimate.hosts else ""', '""',
          COST),
    Named("5 audio hours are ceilings of memory", "ops/cost/audio.py",
          "    if load:\n        return _typed(azure_calls",
          "    if not load:\n        return _typed(azure_calls", COST),
    # 6, observed
    Named("6 an outage of Prometheus buys every GPU", f"{PODS}/scaling.py", '"currentReplicas"', '"static"',
          ENGINES),
    Named("6 alerts tell nobody", f"{AZURE}/alerts.py",
          "actions=[alertsmanagement.PrometheusRuleGroupActionArgs(action_group_id=self._action_group.id)],",
          "actions=[],", ALERTS),
    Named("6 alerts without a runbook", f"{AZURE}/alerts.py",
          '                "runbook": names.runbook_url(self._scope.deployment, alert.id),\n', "", ALERTS),
    Named("6 no budget", f"{AZURE}/alerts.py", "            self._build_budget(", "            str(", ALERTS),
    Named("6 the budget leaves GPU nodes out", f"{AZURE}/alerts.py",
          "[names.resource_group(deployment), names.node_resource_group(deployment)]",
          "[names.resource_group(deployment)]", ALERTS),
    Named("6 starts are not recorded", f"{AZURE}/alerts.py", "[_recording(each) for each in recordings()]", "[]",
          ALERTS),
    Named("6 no dashboards", f"{AZURE}/dashboards.py", "for each in dashboards(scope.deployment):", "for each in ():",
          ALERTS),
    Named("6 dashboards without graphs", f"{AZURE}/dashboards.py", "json.dumps(document(scope.deployment, each))",
          'json.dumps({"panels": []})', ALERTS),
    Named("6 no graph of callers", DRAWN, "(_callers(),) if deployment.azure.callers else ()", "()", ALERTS),
    Named("6 a graph of what nobody publishes", DRAWN, "rate({AgentMetric.REFUSED}[2m])",
          "rate({AgentMetric.REFUSED}_all[2m])", ALERTS),
    Named("6 speech is drawn by its first token", DRAWN, "SpeechMetric.FIRST_SOUND if", "EngineMetric.FIRST_TOKEN if",
          ALERTS),
    # 7, before the deploy
    Named("7 providers are taken for registered", f"{ASKED}/registrations.py", "states.get(name.lower()) != REGISTERED",
          "False", PREFLIGHT),
    Named("7 encryption is taken for registered", f"{ASKED}/registrations.py",
          'blocks="" if state == REGISTERED else remedy', 'blocks=""', PREFLIGHT),
    Named("7 all zeros administer production", f"{ASKED}/roles.py",
          "known is False or (placeholder and deployment.environment is Environment.PRODUCTION)", "known is False",
          PREFLIGHT),
    Named("7 a group that is not there", f"{ASKED}/roles.py", "bool(response.status_code == HTTPStatus.OK)", "True",
          PREFLIGHT),
    Named("7 whoever may not assign roles deploys", f"{ASKED}/roles.py",
          'blocks="" if conditions else "be Owner', 'blocks="" if True else "be Owner', PREFLIGHT),
    Named("7 a condition on assignments is not told", f"{ASKED}/roles.py", "bool(conditions) and all(conditions)",
          "False", PREFLIGHT),
    Named("7 zones are not asked for", f"{ASKED}/sizes.py", 'blocks=remedy if missing else ""', 'blocks=""', PREFLIGHT),
    Named("7 restricted zones count", f"{ASKED}/sizes.py", "sold -= set(", "sold & set(", PREFLIGHT),
    Named("7 restricted sizes count", f"{ASKED}/sizes.py", 'restriction.type == "Location"', 'restriction.type == ""',
          PREFLIGHT),
    Named("7 sizes whose hosts encrypt nothing", f"{ASKED}/sizes.py", '"EncryptionAtHostSupported") == "False"',
          '"EncryptionAtHostSupported") == "No"', PREFLIGHT),
    # 8, gated weights and secrets
    Named("8 no job has the token", f"{PODS}/model_fetch.py", '({"HF_TOKEN_PATH": self.token_file} if self.token_file',
          '({"HF_TOKEN_PATH": self.token_file} if not self', TOKEN),
    Named("8 the token's volume is not mounted", f"{PODS}/model_fetch.py",
          'mount_path=HUB_DIR, read_only=True) for _ in self._token)',
          "mount_path=HUB_DIR, read_only=True) for _ in ())", TOKEN),
    Named("8 the driver reads as nobody", f"{PODS}/model_fetch.py",
          '"clientID": cluster.require_output(ClusterOutput.MODEL_FETCH_CLIENT_ID)',
          '"clientID": cluster.require_output(ClusterOutput.KEDA_CLIENT_ID)', TOKEN),
    # 9, relations that no field of the file can say
    Named("9 a context beyond the model's", f"{PACK}/cluster.py",
          'context = engine.number("--max-model-len", model.max_context_tokens)', "context = model.max_context_tokens",
          PLANTED),
    Named("9 heads that GPUs cannot share", f"{PACK}/cluster.py", "        engine.tensor_parallel,\n        None\n",
          "        1,\n        None\n", PLANTED),
    Named("9 a batch with less than a token a sequence", f"{PACK}/limits.py", "int(batch) < int(sequences)",
          "int(batch) < 0", PLANTED),
    Named("9 blocks that no kernel takes", f"{PACK}/limits.py", "if block % KERNEL_BLOCK:", "if block % 8:", PLANTED),
    Named("9 a KV cache in a type that the GPU has not", f"{PACK}/limits.py", "gpu.compute_capability < BLACKWELL",
          "False", PLANTED),
    Named("9 bodies smaller than audio", f"{PACK}/limits.py", "and body < clip", "and not body", PLANTED),
    Named("9 audio goes to who reads JSON", f"{PACK}/limits.py", '"audio" in each.path or', '"voice" in each.path or',
          PLANTED),
    Named("9 WebSockets go to who reads JSON", f"{PACK}/limits.py", 'each.method == "WEBSOCKET"', "False", PLANTED),
    Named("9 the unknown goes to who reads JSON", f"{PACK}/limits.py", '(other | {"/"})', "other", PLANTED),
    Named("9 shares of one GPU beyond the whole", f"{PACK}/limits.py", "if total > 1:", "if total > 2:", PLANTED),
    Named("9 a share that is told to nobody", f"{PACK}/engines.py", "str(flag.default))", '"0")', PLANTED),
    Named("9 GPUs that a pod has not", f"{PACK}/placement.py", "!= set(range(pod.gpus))", "== set()", PLANTED),
    Named("9 flags that a release has not", f"{PACK}/limits.py", "if flag is None:", "if flag is None and not name:",
          PLANTED),
    Named("9 values that a release has not", f"{PACK}/limits.py", "elif not _takes(flag, text):", "elif False:",
          PLANTED),
    Named("9 variables that nobody reads", f"{PACK}/limits.py", "and name not in table.environment", "and not name",
          PLANTED),
    Named("9 fewer pods than a node's own", f"{PACK}/foundations.py", "AGENTS + engines, f", "engines, f", PLANTED),
    Named("9 fewer pods than a node's engines", f"{PACK}/foundations.py", "AGENTS + engines, f", "AGENTS, f", PLANTED),
    Named("9 a system pool of few pods", f"{PACK}/foundations.py", "SYSTEM_PODS = 30", "SYSTEM_PODS = 29", PLANTED),
    Named("9 spot from a reservation", f"{PACK}/cloud.py",
          '(profile.system or props["capacityReservationGroupID"])', "profile.system", PLANTED),
    Named("9 reservations that pools do not show", f"{PACK}/cluster.py",
          'is_reserved=bool(props["capacityReservationGroupID"])', "is_reserved=False", PLANTED),
    Named("9 a reservation in a placement group", f"{PACK}/limits.py",
          'if profile.props["capacityReservationGroupID"].text:', "if False:", PLANTED),
    Named("9 a placement group over zones", f"{PACK}/limits.py", "if len(zones) > 1:", "if len(zones) > 3:", PLANTED),
    # 10, sizing
    Named("10 a call takes Whisper's tokens", "blueprint/engines/sizing/live.py", "if load.session_tokens < need:",
          "if load.session_tokens < 448:", SIZING),
    Named("10 memory alone bounds live calls", "blueprint/engines/sizing/live.py",
          "if not model.hears_live or not model.audio_tokens_per_s:", "if True:", SIZING),
    Named("10 live calls of no length", f"{OF_CHECKS}/live.py", "if live.load.longest_call_s is None:", "if False:",
          CHECKS),
    Named("10 more than anybody published", f"{OF_CHECKS}/live.py", "if claim > best.streams:", "if False:", CHECKS),
    Named("10 500 sessions on one A10 is a remark", f"{OF_CHECKS}/azure_sizing.py",
          '    source="blueprint/engines/sizing: ceilings of memory, and',
          '    level=Level.WARNING,\n    source="blueprint/engines/sizing: ceilings of memory, and', CHECKS),
    # 11, small
    Named("11 64 MiB for the runtime's hooks", "blueprint/engines/cell.py", "HOLDER_GIB = 0.25", "HOLDER_GIB = 0.0625",
          ("tests/stacks/azure/test_workloads_cell.py",)),
    Named("11 a share is as fast as asked for", f"{OF_CHECKS}/azure_sizing.py", "    if seconds > limit_s:",
          "    if seconds < 0:", CHECKS),
    Named("11 devices that a reload of systemd takes away", f"{PODS}/gpu_nodes.py", '"PASS_DEVICE_SPECS": "true"',
          '"PASS_DEVICE_SPECS": "false"', ("tests/stacks/azure/test_workloads.py",)),
)  # fmt: skip
