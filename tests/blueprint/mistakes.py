"""Mistakes in a deployment file, and the single problem that each must cause."""

from typing import NamedTuple


class Mistake(NamedTuple):
    """A replacement of ``old`` by ``new`` in the base document.

    The single problem, on the line of ``culprit``, contains ``says``.
    """

    old: str
    new: str
    culprit: str
    says: tuple[str, ...]


ENDPOINT = "{url: https://engines.callers.dev/v1, model: any}"
AGENTS = f"""\
  agents:
    voice: any
    chat: {ENDPOINT}
    tasks: {{min: 1, max: 2}}
"""
BUSY_RULE = (
    "{{name: {}, metric: GpuBusy, statistic: average, comparison: above, threshold: 90, period_s: 10, "
    "datapoints_to_alarm: 3, evaluation_periods: 3, missing_data: not-breaching, steps: [{{adjustment: 1}}]}}"
)

MISTAKES = {
    # Unknown keys, at every depth
    "unknown key": Mistake("name: base", "name: base\nregoin: x", "regoin", ("`regoin` is an unknown setting",)),
    "unknown key, misspelt": Mistake(
        "  state:\n", "  stat:\n", "  stat:", ("`aws.stat` is an unknown setting", "did you mean `state`?")
    ),
    "unknown key, nested": Mistake(
        "nat_gateways: 3", "nat_gateway: 3", "nat_gateway",
        ("`aws.network.nat_gateway`", "did you mean `nat_gateways`?"),
    ),
    "unknown key, in braces": Mistake(
        "rx_ring_size: 256", "rx_ring: 256", "rx_ring:", ("`aws.vad.data_path.rx_ring`", "did you mean `rx_ring_size`?")
    ),
    "unknown key, in a list": Mistake(
        "- name: ring-low\n        metric", "- name: ring-low\n        metrik", "metrik",
        ("`aws.vad.scaling.1.metrik`", "did you mean `metric`?"),
    ),
    "unknown key, in a list of a list": Mistake(
        "{lower_bound: 5, adjustment: 2}", "{lower_bond: 5, adjustment: 2}", "lower_bond",
        ("`aws.asr.1.scaling.0.steps.1.lower_bond`", "did you mean `lower_bound`?"),
    ),
    "setting under its old name": Mistake(
        "{lower_bound: 5, adjustment: 2}", "{beyond: 5, adjustment: 2}", "beyond",
        ("steps.1.beyond` is an unknown setting; it is called `lower_bound` or `upper_bound` now",),
    ),
    "required setting under its old name": Mistake(
        "{lower_bound: 5, adjustment: 2}", "{lower_bound: 5, change: 2}", "change",
        ("steps.1.change` is an unknown setting; it is called `adjustment` now",),
    ),
    "unknown key, in the purchase union": Mistake(
        "reservation_id:", "reservation:", "reservation:",
        ("`aws.asr.1.purchase.reservation` is an unknown setting", "did you mean `reservation_id`?"),
    ),
    "key of another member of the purchase union": Mistake(
        "option: capacity-reservation", "option: spot", "reservation_id",
        ("`aws.asr.1.purchase.reservation_id` is an unknown setting",),
    ),
    "unknown image": Mistake("  gateway: sha", "  gatewai: sha", "gatewai", ("`images.gatewai`", "'gateway'")),
    "null key": Mistake("name: base", "name: base\n? \n: 1", "? \n", ("a key must be a plain word",)),
    "list as key": Mistake("name: base", "name: base\n? [a]\n: 1", "? [a]", ("a key must be a plain word",)),
    "merge key": Mistake(
        "name: base", "name: base\n<<: {environment: staging}", "<<", ("merge keys (`<<`) are not supported",)
    ),
    # Agents
    "agents that cannot speak": Mistake(
        "  edge:\n", f"{AGENTS}    prompt: Be brief.\n  edge:\n", "agents:", ("aws.agents.speech", "missing")
    ),
    "agents that are told nothing": Mistake(
        "  edge:\n", f"{AGENTS}    speech: {ENDPOINT}\n  edge:\n", "agents:", ("either `prompt` or `prompt_secret`",)
    ),
    "an engine on a port that agents are not let out to": Mistake(
        "  edge:\n", f"{AGENTS}    prompt: Be brief.\n    speech: {ENDPOINT.replace('/v1', ':8000/v1')}\n  edge:\n",
        "speech:", ("aws.agents.speech.url",),
    ),
    # Names that are in no catalogue
    "instance type of the VAD fleet": Mistake(
        "c8g.12xlarge", "c8g.12xlarg", "c8g.12xlarg", ("EC2 instance type", "did you mean `c8g.12xlarge`?")
    ),
    "instance type of an ASR fleet": Mistake(
        "p5.48xlarge", "p5.48xlarg", "p5.48xlarg", ("EC2 instance type", "did you mean `p5.48xlarge`?")
    ),
    "region": Mistake(
        "region: us-east-1\n", "region: us-eas-1\n", "us-eas-1", ("AWS region", "did you mean `us-east-1`?")
    ),
    "cache node type": Mistake(
        "cache.r7g.large", "r7g.large", "node_type: r7g", ("ElastiCache node type", "did you mean `cache.r7g.large`?")
    ),
    "name like nothing": Mistake("c8g.12xlarge", "zzz", "zzz", ("is not a known EC2 instance type in ",)),
    # Wrong types
    "text for a number": Mistake(
        "rx_queues: 4", 'rx_queues: "4"', "rx_queues", ('`aws.vad.data_path.rx_queues` is "4"', "whole number")
    ),
    "number for text": Mistake("name: base", "name: 3", "name: 3", ("`name` is 3", "text", "put it in quotes")),
    "boolean for text": Mistake(
        "reason: measured on 2026-10-01", "reason: yes", "reason", ("is true", "text", "put it in quotes")
    ),
    "boolean for a number": Mistake("rx_queues: 4", "rx_queues: true", "rx_queues", ("is true", "whole number")),
    "fraction for a whole number": Mistake("rx_queues: 4", "rx_queues: 4.0", "rx_queues", ("is 4.0", "whole number")),
    "nothing for a number": Mistake("replicas: 1", "replicas:", "replicas", ("`aws.state.replicas` is null",)),
    "list for a mapping": Mistake(
        "{size_mib: 2, count: 256}", "[2, 256]", "huge_pages", ("is [2, 256]", "mapping of `size_mib`, `count`")
    ),
    "mapping for a list": Mistake(
        "interface_endpoints: []", "interface_endpoints: {}", "interface_endpoints", ("is {}", "should be a list")
    ),
    "scalar in a list of mappings": Mistake(
        "steps: [{adjustment: 2}]", "steps: [2]", "[2]", ("`aws.vad.scaling.0.steps.0` is 2", "mapping of `adjustment`")
    ),
    "account number without quotes": Mistake(
        '"123456789012"', "123456789012", "account", ("`aws.account` is 123456789012", "put it in quotes")
    ),
    "account number that YAML reads as octal": Mistake(
        '"123456789012"', "012345670123", "account", ("`012345670123` reads as the number 1402433619", "quotes")
    ),
    "account number in other digits": Mistake('"123456789012"', '"١٢٣٤٥٦٧٨٩٠١٢"', "account", ("`aws.account`",)),
    "long value": Mistake("name: base", f"name: {'x' * 200}", "name: xxx", ("x...: ", "at most 32")),
    "unit in a number": Mistake(
        "rx_queues: 4", "rx_queues: 4 queues", "rx_queues", ('is "4 queues": should be a whole number; write it alone',)
    ),
    "unit in a time": Mistake("period_s: 10\n", "period_s: 10s\n", "10s", ("should be a whole number of seconds",)),
    "percent sign": Mistake("threshold: 80\n", "threshold: 80%\n", "80%", ("should be a number; write it alone",)),
    "currency": Mistake("monthly_budget_usd: 100000", "monthly_budget_usd: $1,000", "$1,000", ("number of USD",)),
    "word for a section": Mistake("{kind: iam}", "iam", "authorizer: iam", ("should be a mapping of `kind`,",)),
    "kind under another name": Mistake(
        "{kind: iam}", "{type: iam}", "type: iam", ("kind` is missing; add it: one of 'iam', 'jwt', 'api-key', 'none'",)
    ),
    "word for a list": Mistake(
        "[us-east-1a, us-east-1b, us-east-1c]", "us-east-1a", "availability_zones: us", ("should be a list",)
    ),
    "quotes around a truth": Mistake(
        "deletion_protection: true", "deletion_protection: 'yes'", "deletion_protection", ("should be true or false",)
    ),
    "range without a prefix": Mistake("10.40.0.0/16", "10.40.0.0", "cidr", ("prefix length, such as 10.40",)),
    "range beyond bytes": Mistake("10.40.0.0/16", "10.400.0.0/16", "cidr", ("400", "such as 10.40.0.0/16")),
    # Values out of bounds
    "negative count": Mistake(
        "{min: 1, max: 10}", "{min: -1, max: 10}", "max: 10", ("`aws.vad.hosts_per_zone.min` is -1", "equal to 0")
    ),
    "min above max": Mistake(
        "{min: 4, max: 4}", "{min: 5, max: 4}", "max: 4", ("`aws.asr.0.hosts.min`", "min 5", "max 4")
    ),
    "choice": Mistake("size_mib: 2,", "size_mib: 4,", "size_mib", ("is 4", "2, 32 or 1024")),
    "enum": Mistake("hosts: {min: 4, max: 4}\n      engine: whisper", "hosts: {min: 4, max: 4}\n      engine: wisper",
                    "wisper", ("`aws.asr.0.engine`", "'whisper'")),
    "purchase option": Mistake(
        "option: capacity-reservation", "option: reserved", "reserved",
        ('`aws.asr.1.purchase.option` is "reserved"', "'capacity-reservation'"),
    ),
    "UDP without ENA Express": Mistake("udp: false", "udp: true", "udp", ("udp: true needs enabled: true",)),
    "public range": Mistake("10.40.0.0/16", "54.0.0.0/16", "cidr", ("54.0.0.0/16 is not private",)),
    "loopback range": Mistake("10.40.0.0/16", "127.0.0.0/16", "cidr", ("127.0.0.0/16 is not private",)),
    "small range": Mistake("10.40.0.0/16", "10.40.0.0/25", "cidr", ("/25", "/24")),
    "large range": Mistake("10.40.0.0/16", "10.0.0.0/15", "cidr", ("/15", "/16")),
    "range with host bits": Mistake("10.40.0.0/16", "10.40.0.1/16", "cidr", ("10.40.0.1/16", "write 10.40.0.0/16")),
    "range with a netmask": Mistake("10.40.0.0/16", "10.40.0.0/255.255.0.0", "cidr", ("write 10.40.0.0/16",)),
    "range that is none": Mistake("10.40.0.0/16", "everything", "cidr", ("'everything'",)),
    "zone twice": Mistake("us-east-1b,", "us-east-1a,", "us-east-1a, us-east-1a",
                         ("`aws.availability_zones.1`: us-east-1a is listed twice",)),
    "fleet twice": Mistake("name: p5-large", "name: p5", "- name: p5\n      instance_type: p5.48",
                           ("`aws.asr.1.name`: p5 is the name of an earlier fleet", "use another name")),
    "fleet named like the VAD fleet": Mistake("name: p5-large", "name: vad", "name: vad",
                                              ("`aws.asr.1.name`: vad is the name of", "another tier")),
    "fleet named like a group of the VAD fleet": Mistake("name: p5-large", "name: vad-c", "name: vad-c",
                                                         ("`aws.asr.1.name`: vad-c is the name of", "another tier")),
    "fleet named like the gateway": Mistake("name: p5-large", "name: gateway", "name: gateway",
                                            ("`aws.asr.1.name`: gateway is the name of", "another tier")),
    "fleet named like the agents": Mistake("name: p5-large", "name: agent", "name: agent",
                                           ("`aws.asr.1.name`: agent is the name of", "another tier")),
    **{
        f"fleet whose scaling alarms are named like alerts, {name}": Mistake(
            "name: p5-large", f"name: {name}", f"name: {name}",
            (f"`aws.asr.1.name`: {name} begins with alert, as do names of alerts", "use another name"),
        )
        for name in ("alert", "alert-engine")
    },
    **{
        f"fleet named like another construct, {name}": Mistake(
            "name: p5-large", f"name: {name}", f"name: {name}",
            (f"`aws.asr.1.name`: {name} is the id of another resource", "use a name other than file, profile, role"),
        )
        for name in ("file", "profile", "role")
    },
    **{
        f"fleet with the stack of another deployment, {name}": Mistake(
            "name: p5-large", f"name: {name}", f"name: {name}",
            (f"`aws.asr.1.name`: the stack asr-{name} of deployment x", "a stack of deployment x-asr", "use another"),
        )
        for name in (
            "network", "registry", "state", "asr", "edge", "agents", "observability", "host-images"
        )
    },
    "fleet that differs from another in a hyphen": Mistake(
        "name: p5-large", "name: p-5", "name: p-5",
        ("`aws.asr.1.name`: p-5 and p5 give resources the same id", "use a name that differs in more than hyphens"),
    ),
    "rule that differs from another in a hyphen": Mistake(
        "scaling: []", f"scaling: [{BUSY_RULE.format('out-1')},\n        {BUSY_RULE.format('out1')}]",
        BUSY_RULE.format("out1"),
        ("`aws.asr.0.scaling.1.name`: out1 and out-1 give resources the same id", "in more than hyphens"),
    ),
    "rule that differs from another in a hyphen behind a digit": Mistake(
        "scaling: []", f"scaling: [{BUSY_RULE.format('x1-a')},\n        {BUSY_RULE.format('x1a')}]",
        BUSY_RULE.format("x1a"), ("`aws.asr.0.scaling.1.name`: x1a and x1-a give resources the same id",),
    ),
    "rules of two fleets whose alarms have one name": Mistake(
        "scaling: []",
        f"scaling: [{BUSY_RULE.format('large-busy')}]",
        "name: busy",
        ("`aws.asr.1.scaling.0.name`: the alarm of an earlier rule has the same name, p5-large-busy", "rename"),
    ),
    "a snapshot that goes with its store": Mistake(
        "snapshot_retention_days: 1", "restore_from: automatic.base-state-1", "restore_from",
        ("automatic.base-state-1 is deleted with its store", "--take NAME --source-snapshot automatic.base-state-1"),
    ),
    "gateways above zones": Mistake(
        "nat_gateways: 3", "nat_gateways: 4", "nat_gateways: 4", ("nat_gateways 4", "3 availability")
    ),
    "rule twice": Mistake(
        "name: ring-low", "name: ring-high",
        "- name: ring-high\n        metric: RxRingOccupancy\n        statistic: maximum\n        comparison: below",
        ("`aws.vad.scaling.1.name`: ring-high is the name of an earlier rule",)
    ),
    "authorizer of another kind": Mistake(
        "{kind: iam}", "{kind: ima}", "kind: ima", ('`aws.edge.authorizer.kind` is "ima"', "'iam'")
    ),
    "key of another authorizer": Mistake(
        "{kind: iam}", "{kind: iam, issuer: https://a.example}", "kind: iam",
        ("`aws.edge.authorizer.issuer` is an unknown setting",),
    ),
    "root volume beyond Image Builder's maximum, of the VAD fleet": Mistake(
        "    machine_image: ami-0123456789abcdef0\n",
        "    machine_image: ami-0123456789abcdef0\n    root_volume_gib: 16001\n", "root_volume_gib",
        ("`aws.vad.root_volume_gib` is 16001", "less than or equal to 16000"),
    ),
    "root volume beyond Image Builder's maximum, of an ASR fleet": Mistake(
        "      machine_image: ami-0123456789abcdef1\n",
        "      machine_image: ami-0123456789abcdef1\n      root_volume_gib: 16384\n", "root_volume_gib",
        ("`aws.asr.0.root_volume_gib` is 16384", "less than or equal to 16000"),
    ),
    "size that Fargate lacks": Mistake("vcpu: 1,", "vcpu: 3,", "vcpu", ("`aws.edge.gateway.vcpu`", "no 3 vCPU")),
    "memory below what Fargate sells": Mistake("memory_gib: 2", "memory_gib: 1", "vcpu", ("no 1 GiB with 1 vCPU",)),
    "memory above what Fargate sells": Mistake("memory_gib: 2", "memory_gib: 9", "vcpu", ("take 2 to 8 GiB",)),
    "pages of every origin": Mistake(
        "    gateway: {vcpu", "    allowed_origins: ['*']\n    gateway: {vcpu", "'*'", ("allowed_origins.0",)
    ),
    "domain outside its zone": Mistake(
        "zone_name: callers.dev", "zone_name: example.org", "domain", ("voice.callers.dev", "zone example.org")
    ),
    "no certificate": Mistake(
        "    domain: {name: voice.callers.dev, zone_id: Z0123456789EXAMPLE, zone_name: callers.dev}\n", "", "  edge:",
        ("`aws.edge`", "`certificate_arn`"),
    ),
    # Missing
    "required key": Mistake("name: base\n", "", "environment: production", ("`name` is missing",)),
    "required key, nested": Mistake("count: 256", "", "size_mib", ("`aws.vad.huge_pages.count` is missing",)),
    "required key, in a list": Mistake(
        "          statistic: average\n          comparison: below", "          comparison: below", "- name: idle",
        ("`aws.asr.1.scaling.1.statistic` is missing",),
    ),
    "required key, of the purchase union": Mistake(
        "        reservation_id: cr-0123456789abcdef0\n", "", "purchase:\n        option: cap",
        ("`aws.asr.1.purchase.reservation_id` is missing",),
    ),
    "tag of the purchase union": Mistake(
        "{option: on-demand}", "{}", "{}", ("`aws.asr.0.purchase.option` is missing",)
    ),
    # YAML itself
    "malformed": Mistake("{min: 1, max: 10}", "{min: 1, max: 10", "huge_pages", ("is not valid YAML",)),
    "bad indentation": Mistake("  state:\n", "   state:\n", "   state:", ("is not valid YAML",)),
    "tab": Mistake("  region: us", "\tregion: us", "\tregion", ("is not valid YAML", "'\\t'")),
    "duplicate key": Mistake("environment: production", "environment: staging\nenvironment: production",
                             "environment: production", ("`environment` is defined twice", "first in line 2")),
    "duplicate key, nested": Mistake("replicas: 1", "replicas: 2\n    replicas: 1", "replicas: 1",
                                     ("`replicas` is defined twice",)),
    "alias": Mistake("name: base\nenvironment: production", "name: &n base\nenvironment: *n", "*n", ("aliases",)),
    "date": Mistake("name: base", "name: 2026-10-01", "name: 2026", ("`2026-10-01`", "timestamp", "put it in quotes")),
    "binary": Mistake("name: base", "name: !!binary aGk=", "aGk=", ("`aGk=`", "binary")),
    "Python object": Mistake("name: base", "name: !!python/name:os.system x", "os.system", ("put it in quotes",)),
    "base 60": Mistake("rx_queues: 4", "rx_queues: 15:00", "15:00", ("`15:00` reads as the number 900",)),
    "infinite": Mistake("threshold: 80", "threshold: .inf", ".inf", ("`.inf` is out of range",)),
    "negative infinite": Mistake("threshold: 80", "threshold: -.inf", ".inf", ("`-.inf` is out of range",)),
    "not a number": Mistake("threshold: 80", "threshold: .nan", ".nan", ("`.nan` is out of range",)),
    "overflowing": Mistake("threshold: 80", "threshold: 1.0e+400", "e+400", ("`1.0e+400` is out of range",)),
    "whole number beyond floats": Mistake("count: 256", f"count: 2{'0' * 400}", "count: 2", ("` is out of range",)),
    "number that is none": Mistake("threshold: 80", "threshold: !!int foo", "foo", ("`foo` is not a valid YAML int",)),
    "empty number": Mistake("threshold: 80", 'threshold: !!float ""', "!!float", ("is not a valid YAML float",)),
    "boolean that is none": Mistake("threshold: 80", "threshold: !!bool foo", "foo", ("is not a valid YAML bool",)),
    "binary number without digits": Mistake("threshold: 80", "threshold: 0b_", "0b_", ("is not a valid YAML int",)),
    "number of 5000 digits": Mistake("threshold: 80", f"threshold: {'9' * 5000}", ": 999", ("not a valid YAML int",)),
    "escape beyond Unicode": Mistake("name: base", 'name: "\\UFFFFFFFF"', "\\UFF", ("invalid Unicode char",)),
    "half a surrogate pair": Mistake("name: base", 'name: "\\ud800"', "ud800", ("invalid Unicode char",)),
    "half a surrogate pair as key": Mistake("name: base", 'name: base\n"\\ud800": 1', "ud800", ("invalid Unicode",)),
    "control character": Mistake("environment: prod", "environment: \0prod", "prod", ("#x0000",)),
    "deep nesting": Mistake("name: base", f"name: {'[' * 3000}", "name: [", ("nested more than 50 levels",)),
    "public key that is none": Mistake(
        "-----BEGIN PUBLIC KEY-----", "-----BEGIN-----", "public_key: |",
        ("`image_signing.public_key`", "is not a public key in PEM", "`cosign public-key`"),
    ),
    "merge conflict": Mistake(
        "name: base\n", "<<<<<<< HEAD\nname: base\n=======\nname: other\n>>>>>>> other\n", "<<<<<<<",
        ("has a merge conflict of git; resolve it",),
    ),
    "no space behind a colon": Mistake(
        "environment: production", "environment:production", "images:", ("write a space after the colon of a key",)
    ),
    "value with a colon": Mistake(
        "reason: measured on 2026-10-01", "reason: seen: yes", "reason", ("quote a value that contains a colon",)
    ),
    "braces of a template": Mistake("name: base", "name: {{ name }}", "{{ name }}", ("or `[` in quotes",)),
    "list that is never closed": Mistake(
        "[us-east-1a, us-east-1b, us-east-1c]", "[us-east-1a", "account: ", ("the `[` in line 20 opens it",)
    ),
    "two documents": Mistake("accepted_checks:", "--- # two\naccepted_checks:", "--- # two", ("a single document",)),
}  # fmt: skip
