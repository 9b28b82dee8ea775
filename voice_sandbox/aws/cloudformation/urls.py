"""Routes of the CloudFormation API. moto finds this module by its name, next to `models`."""

from voice_sandbox.aws.cloudformation.responses import SandboxCloudFormationResponse

url_bases = [r"https?://cloudformation\.(.+)\.amazonaws\.com"]

url_paths = {"{0}/$": SandboxCloudFormationResponse.dispatch}
