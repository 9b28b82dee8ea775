"""Sends values to CloudWatch in batches, and buffers a bounded number of them while CloudWatch is unavailable."""

import asyncio
import logging
import random
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from voice_blueprint.contract.metrics import DEPLOYMENT_DIMENSION, FLEET_DIMENSION, NAMESPACE, STORAGE_RESOLUTION_S
from voice_telemetry.sample import Sample

MAX_VALUES_PER_REQUEST = 1000
"""Maximum number of values per PutMetricData.
https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricData.html"""

MAX_BUFFERED_VALUES = 36_000
"""Maximum number of buffered values: twenty values per second from a VAD host for half an hour, about 20 MB."""

MAX_PAUSE_S = 60.0
_BAD_REQUEST = 400
_TOO_MANY_REQUESTS = 429
_THROTTLING_CODES = {"Throttling", "ThrottlingException", "RequestLimitExceeded"}
_CREDENTIAL_ERROR_CODES = {"AccessDenied", "AccessDeniedException", "ExpiredToken", "ExpiredTokenException",
                   "InvalidClientTokenId", "UnrecognizedClientException"}  # fmt: skip
"""Errors caused by the credentials. Once the credentials are fixed, CloudWatch accepts the values."""

if TYPE_CHECKING:  # stubs, which the image does not contain
    from types_boto3_cloudwatch import CloudWatchClient
    from types_boto3_cloudwatch.type_defs import MetricDatumTypeDef

log = logging.getLogger(__name__)


class CloudWatchPublisher:
    """Buffers samples, and publishes them to CloudWatch.

    Attributes:
        lost_count: Number of values that were discarded because CloudWatch was unavailable for too long or rejected
            them.
    """

    def __init__(
        self, client: "CloudWatchClient", *, deployment: str, fleet: str, max_buffered: int = MAX_BUFFERED_VALUES
    ) -> None:
        self._client = client
        self._host_dimensions = {DEPLOYMENT_DIMENSION: deployment, FLEET_DIMENSION: fleet}
        self._waiting: deque[Sample] = deque()
        self._max_waiting = max_buffered
        self._failures = 0
        self.lost_count = 0

    @property
    def unsent_count(self) -> int:
        """Number of unsent values."""
        return len(self._waiting)

    def add(self, samples: list[Sample]) -> None:
        """Add values. Above the maximum, discard the oldest values."""
        self._waiting.extend(samples)
        while len(self._waiting) > self._max_waiting:
            self._waiting.popleft()
            self.lost_count += 1

    async def publish(self) -> None:
        """Send all buffered values. Values that cannot be sent remain in the buffer."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(MAX_VALUES_PER_REQUEST, len(self._waiting)))]
            try:
                await asyncio.to_thread(
                    self._client.put_metric_data,
                    Namespace=NAMESPACE,
                    MetricData=[self._build_datum(each) for each in batch],
                )
            except ClientError as error:
                if _is_invalid_request_error(error):
                    self.lost_count += len(batch)
                    log.error("CloudWatch rejects %d values: %s", len(batch), error)  # noqa: TRY400  a response, not a bug
                    continue
                self._requeue(batch, error)
                return
            except BotoCoreError as error:
                self._requeue(batch, error)
                return
            self._failures = 0

    def calculate_next_pause_s(self, interval_s: float) -> float:
        """Return the pause before the next call. While calls fail, the pause increases, and has jitter."""
        if not self._failures:
            return interval_s
        longest = min(MAX_PAUSE_S, interval_s * 2**self._failures)
        return random.uniform(longest / 2, longest)  # noqa: S311  spreads hosts

    def _requeue(self, batch: list[Sample], error: Exception) -> None:
        self._failures += 1
        self._waiting.extendleft(reversed(batch))
        self.add([])
        log.warning("CloudWatch is away, %d values wait: %s", self.unsent_count, error)

    def _build_datum(self, sample: Sample) -> "MetricDatumTypeDef":
        dimensions = self._host_dimensions | (
            {sample.extra_dimension: sample.dimension_value} if sample.extra_dimension else {}
        )
        return {
            "MetricName": sample.name,
            "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions.items()],
            "Timestamp": datetime.fromtimestamp(sample.read_at, UTC),
            "Value": sample.value,
            "Unit": sample.metric.unit,
            "StorageResolution": STORAGE_RESOLUTION_S,
        }


def _is_invalid_request_error(error: ClientError) -> bool:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = error.response.get("Error", {}).get("Code", "")
    return (
        _BAD_REQUEST <= status < 500  # noqa: PLR2004  4xx
        and status != _TOO_MANY_REQUESTS
        and code not in _THROTTLING_CODES | _CREDENTIAL_ERROR_CODES
    )
