"""Routes; moto finds this module beside `models` by its name."""

from sandbox.aws.cloudformation.responses import SandboxCloudFormationResponse

url_bases = [r"https?://cloudformation\.(.+)\.amazonaws\.com"]

url_paths = {"{0}/$": SandboxCloudFormationResponse.dispatch}
