"""The local Pulumi engine: real Pulumi programs, run over Pulumi's own gRPC protocol, without the Pulumi CLI.

* `run` starts a program as a child process (`child`, `host`) and serves it the engine (`monitor`, `recorder`).
* `schema` reads the installed SDKs: which resource types exist, which inputs they take; `inputs` checks against it.
* `fakes` answer for Azure and Kubernetes in a simulated `up`: ids, names, endpoints, invokes.
* `graph` is what a run leaves: frozen resources and their edges. `order` proves the order of creation and deletion,
  `diff` compares two graphs, `state` keeps the last one, `policy` hands it to a policy pack.
* `rehearsal` puts it together for one deployment: preview, policies, up, teardown.
"""
