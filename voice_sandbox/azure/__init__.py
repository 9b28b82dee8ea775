"""The local Pulumi engine: runs actual Pulumi programs over Pulumi's own gRPC protocol, without the Pulumi CLI.

* `run` starts a program as a child process (`child`, `host`) and serves the engine (`monitor`, `recorder`). * `schema`
reads the installed SDKs: resource types and their inputs; `inputs` validates against it. * `fakes` simulate Azure and
Kubernetes in a simulated `up`: ids, names, endpoints, invokes. * `graph` is the result of a run: frozen resources and
their edges. `order` checks the order of creation and deletion, `diff` compares two graphs, `state` stores the last one,
`policy` passes it to a policy pack.
"""
