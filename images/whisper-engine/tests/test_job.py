"""Windows in the queue of a stage, and the durations of their transcripts."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from voice_whisper import job as job_module
from voice_whisper.backends.base import DecodedText, Word
from voice_whisper.job import Job, JobQueue, Priority


def job_of(priority: Priority = Priority.FINAL, *, rows: int = 1000, prompt: str = "", failed: int = 0) -> Job:
    result = asyncio.get_running_loop().create_future()
    job = Job(np.zeros((80, rows), np.float32), rows, priority, None, result, prompt=prompt)
    job.failed_attempt_count += failed
    return job


def shares_batch(first: Job, second: Job) -> bool:
    """Return True if a second job joins a batch that a first job has begun."""
    queue, batch = JobQueue(), [first]
    queue.put(second)
    queue.extend_batch(batch, 2)
    assert (len(queue), batch[1:]) in ((0, [second]), (1, []))
    return len(batch) > 1


@pytest.mark.parametrize("first", Priority)
@pytest.mark.parametrize("second", Priority)
async def test_only_files_share_batches_with_files(first: Priority, second: Priority) -> None:
    """A live transcript does not wait for a file."""
    has_files = (first == Priority.FILE, second == Priority.FILE)
    assert shares_batch(job_of(first), job_of(second)) is (has_files in ((True, True), (False, False)))


@pytest.mark.parametrize("priority", Priority)
@pytest.mark.parametrize(
    ("first", "second", "is_shared"),
    [
        ({"prompt": "a"}, {"prompt": "a"}, True),
        ({"prompt": "a"}, {"prompt": "b"}, False),
        ({"prompt": "b"}, {"prompt": "a"}, False),
        ({"rows": 1000}, {"rows": 2000}, False),
        ({"rows": 2000}, {"rows": 1000}, False),
        ({"failed": 1}, {}, False),
        ({}, {"failed": 1}, False),
        ({"failed": 1}, {"failed": 1}, False),
    ],
)
async def test_jobs_of_a_batch_are_alike_and_have_crashed_no_worker(
    priority: Priority, first: dict[str, int], second: dict[str, int], is_shared: bool
) -> None:
    assert shares_batch(job_of(priority, **first), job_of(priority, **second)) is is_shared  # type: ignore[arg-type]


async def test_finals_come_before_partials_and_files_last() -> None:
    queue, jobs = JobQueue(), [job_of(each) for each in (Priority.FILE, Priority.PARTIAL, Priority.FINAL)]
    for job in jobs:
        queue.put(job)
    assert [queue.pop_batch(1) for _ in jobs] == [[job] for job in reversed(jobs)]


async def test_a_batch_has_at_most_its_maximum_of_jobs() -> None:
    queue, jobs = JobQueue(), [job_of() for _ in range(5)]
    for job in jobs:
        queue.put(job)
    assert queue.pop_batch(2) == jobs[:2]
    assert queue.pop_batch(1) == jobs[2:3]
    batch = [job_of()]
    queue.extend_batch(batch, 1)
    assert len(batch) == 1
    assert queue.pop_batch(9) == jobs[3:]
    assert queue.pop_batch(9) == []


async def test_a_job_is_removed_from_among_similar_ones() -> None:
    queue, jobs = JobQueue(), [job_of() for _ in range(3)]
    for job in jobs:
        queue.put(job)
    assert queue.remove(jobs[1])
    assert not queue.remove(jobs[1])
    assert queue.pop_batch(3) == [jobs[0], jobs[2]]


async def test_the_time_outside_of_workers_is_that_in_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.5  # the machine has just started
    monkeypatch.setattr(job_module, "time", SimpleNamespace(monotonic=lambda: now))
    job = job_of()
    job.requested_at = 0.5
    now = 10.5
    job.add_durations({"encode": 1000.0}, 4)
    job.add_durations({"decode": 2500.0, "align": 500.0}, 2)
    words = (Word("yes", 0.1, 0.2, 0.9),)
    job.set_result(DecodedText("yes", "en", words))
    heard = await job.result
    assert heard.stages_ms == {"queue": 6000.0, "encode": 1000.0, "decode": 2500.0, "align": 500.0}
    assert heard.processing_s == 0.25 + 1.5, "its share of two batches"
    assert (heard.text, heard.language, heard.words) == ("yes", "en", words)


async def test_a_new_job_has_waited_and_worked_for_no_time() -> None:
    job = job_of()
    job.set_result(DecodedText("yes", "en"))
    heard = await job.result
    assert heard.processing_s == 0
    assert heard.stages_ms == {"queue": pytest.approx(0, abs=60_000)}
    assert heard.stages_ms["queue"] >= 0


async def test_the_result_of_a_cancelled_job_is_discarded() -> None:
    job = job_of()
    job.result.cancel()
    job.set_result(DecodedText("yes", "en"))
    assert job.result.cancelled()
