"""Whoever invents workers, codes and messages fills no memory, no note, and hides no failure of others."""

import asyncio
from datetime import UTC, datetime, timedelta

import orjson

from lucius.core.errors import LuciusError
from lucius.core.job import Fault
from lucius.core.text import failure_of
from lucius.operations.failures import GUARDED, MOST_GROUPS, MOST_OF_A_SERVICE
from lucius.operations.service_stats import MOST_WORKERS, ServiceStats, merged, read_record
from lucius.operations.workers import LONGEST_NAME, MOST_RECORDED, Workers
from lucius.platform import FatalError
from lucius.ports.lanes import ALL_LANES
from tests.insight.ward import Ward
from tests.virtual import VirtualLoop, run_virtually

AT = datetime(2026, 1, 1, tzinfo=UTC)


def words(number: int) -> str:
    """A text of letters alone, which no two numbers share: nothing of it is taken for a number."""
    return "".join(chr(ord("a") + int(digit)) for digit in f"{number:06}")


class Babbling(dict[str, LuciusError]):
    """Every failure has another text."""

    def __init__(self) -> None:
        super().__init__()
        self._said = 0

    def get(self, key: object, default: object = None) -> FatalError:
        self._said += 1
        return FatalError(f"it broke like {words(self._said)}")


async def fail_once(ward: Ward, service: str, text: str) -> None:
    ward.services[service].fails = {"*": FatalError(text)}
    await ward.ended(await ward.submit("OCR" if service == "ocr" else "ALL"))


def test_a_flood_of_texts_does_not_hide_what_fails_again_and_again() -> None:
    async def main(loop: VirtualLoop) -> None:
        ward = Ward(loop, slots=100)
        book = ward.activity.failures
        async with ward.running("ocr"):
            for _ in range(2):
                await fail_once(ward, "ocr", "the index is down")
                await book.write()
            ward.services["ocr"].fails = Babbling()  # type: ignore[assignment]
            for _ in range(7):
                jobs = [await ward.submit() for _ in range(MOST_OF_A_SERVICE + 20)]
                await asyncio.gather(*(ward.ended(job_id) for job_id in jobs))
                await asyncio.sleep(60)
                await book.write()
            groups = await book.groups(None)
            assert "the index is down" in [group.message for group in groups]
            assert len(groups) <= MOST_GROUPS + MOST_OF_A_SERVICE
            await asyncio.sleep(GUARDED.total_seconds())
            for _ in range(3):
                jobs = [await ward.submit() for _ in range(MOST_OF_A_SERVICE + 20)]
                await asyncio.gather(*(ward.ended(job_id) for job_id in jobs))
                await book.write()
            groups = await book.groups(None)
            assert "the index is down" not in [group.message for group in groups], "a day is over"

    run_virtually(main)


def test_a_flood_of_one_service_leaves_room_for_another_between_two_writes() -> None:
    async def main(loop: VirtualLoop) -> None:
        ward = Ward(loop, slots=100)
        async with ward.running("ocr", "embedding"):
            ward.services["ocr"].fails = Babbling()  # type: ignore[assignment]
            jobs = [await ward.submit() for _ in range(MOST_GROUPS + 50)]
            await asyncio.gather(*(ward.ended(job_id) for job_id in jobs))
            ward.services["ocr"].fails = {}
            ward.services["embedding"].fails = {"*": FatalError("the other one fails")}
            await ward.ended(await ward.submit("ALL"))
            groups = await ward.activity.failures.groups(None)
            services = [group.service for group in groups]
            assert services.count("ocr") == MOST_OF_A_SERVICE
            assert services.count("embedding") == 1

    run_virtually(main)


def test_workers_that_are_invented_are_forgotten_and_their_note_stays_small() -> None:
    """A row of Azure tables holds 1 MB; beyond it nothing of the process would be written any more."""
    workers, name = Workers(ALL_LANES), "\U0001f4a9" * 256
    for service in range(8):
        for number in range(MOST_WORKERS + 50):
            at = AT + timedelta(seconds=number)
            workers.pulled(f"s{service}", f"{number:03}{name}", at, 4, name)
    assert all(len(seen.workers) == MOST_WORKERS for seen in workers.services.values())
    record = workers.record()
    noted = [worker for each in record.values() for worker in each["workers"]]
    assert len(noted) == MOST_RECORDED
    assert max(len(worker) for worker in noted) == LONGEST_NAME
    assert f"{MOST_WORKERS + 49:03}{name}"[:LONGEST_NAME] in noted, "the last are kept"
    assert len(orjson.dumps(record)) < 1_000_000


def failing(jobs: int, at: datetime = AT, text: str = "it broke") -> ServiceStats:
    seen = ServiceStats(AT, AT)
    for number in range(jobs):
        seen.failed(
            at,
            failure_of("ocr", "ocr", Fault("C", text)),
            f"job_{number}",
            "tenant_a",
            retried=False,
        )
    return seen


def test_that_a_service_has_failed_every_job_is_known_after_a_restart_and_to_others() -> None:
    seen = failing(3)
    over = AT + timedelta(minutes=5)
    seen.succeeded(over)
    assert (seen.failing, seen.streak) == (None, None)
    workers = Workers(ALL_LANES)
    workers.services["ocr"] = seen
    read = read_record(orjson.loads(orjson.dumps(workers.record())))
    for known in (read, merged([read, {"ocr": ServiceStats(AT, AT)}])):
        past = known["ocr"].failed_until
        assert past is not None
        assert (past.since, past.until, past.jobs) == (AT, over, 3)


def test_a_success_that_another_process_saw_ends_it_too() -> None:
    other = ServiceStats(AT, AT)
    other.succeeded(AT + timedelta(minutes=1))
    both = merged([{"ocr": failing(4)}, {"ocr": other}])["ocr"]
    assert both.failing is None
    assert both.failed_until is not None
    assert both.failed_until.until == other.last_success


def test_a_note_of_an_earlier_version_is_read() -> None:
    record = {"first": 1.0, "last": 2.0, "workers": {}, "minutes": [], "success": None}
    seen = read_record({"ocr": {**record, "streak": [1.0, "g", "C", "m", ["a", "b", "c"]]}})["ocr"]
    assert seen.failing is not None
    assert (seen.failing.group, seen.past, seen.spell) == ("g", None, None)
