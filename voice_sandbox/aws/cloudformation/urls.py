"""Routes; moto finds this module next to `models` by its name."""

from voice_sandbox.aws.cloudformation.responses import SandboxCloudFormationResponse

url_bases = [r"https?://cloudformation\.(.+)\.amazonaws\.com"]

url_paths = {"{0}/$": SandboxCloudFormationResponse.dispatch}
