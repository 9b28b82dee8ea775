"""The local Pulumi engine: runs actual Pulumi programs over Pulumi's own gRPC protocol, without the Pulumi CLI.

* `run` starts a program as a child process (`child`, `host`) and serves the engine (`monitor`, `recorder`).
* `schema` reads resource types and their inputs from the installed SDKs. `inputs` validates inputs against them.
* `fakes` contains the ids, names, endpoints and invokes of Azure and Kubernetes in a simulated `up`.
* `graph` is the result of a run, which consists of frozen resources and their edges.
* `order` checks the order of creation and deletion. `diff` compares two graphs, `state` stores the last graph, and
  `policy` passes a graph to a policy pack.
"""
