"""How damage is done to each ledger, behind its back."""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from lucius.adapters.ledgers.memory import MemoryLedger
from lucius.adapters.ledgers.rules import group_of, queue_of
from lucius.adapters.ledgers.stored.job_codec import decode_job, encode_job
from lucius.ports.ledger import Claim
from tests.conformance.jobs import make

Change = Callable[[dict[str, Any]], None]


def changed(doc: bytes, change: Change) -> bytes:
    content = orjson.loads(doc)
    change(content)
    return orjson.dumps(content)


class MemoryTamper:
    def __init__(self, ledger: MemoryLedger) -> None:
        self._ledger = ledger

    async def edit(self, job_id: str, change: Change) -> None:
        record = self._ledger.jobs[job_id]
        job = decode_job(record.job.plan, changed(encode_job(record.job), change))
        self._ledger.jobs[job_id] = record._replace(job=job)

    async def mark_newer(self, job_id: str) -> None:
        raise AssertionError("only what outlives a process can be newer than it")

    async def extend(self, job_id: str) -> None:
        raise AssertionError("only what is stored in rows has columns")

    async def extended(self, job_id: str) -> set[str]:
        return set()

    async def ruin(self, job_id: str, what: str) -> None:
        raise AssertionError("only what is stored as text can become unreadable")

    async def lose_job(self, job_id: str) -> None:
        del self._ledger.jobs[job_id]

    async def lose_claim(self, claim: Claim) -> None:
        del self._ledger.claims[claim.tenant_id, claim.claim_hash]

    async def lose_ready(self, job_id: str) -> None:
        record = self._ledger.jobs[job_id]
        self._ledger.jobs[job_id] = record._replace(ready={})

    async def lose_due(self, job_id: str) -> None:
        del self._ledger.due_index.moments[job_id]

    async def lose_events(self, job_id: str) -> None:
        self._ledger.history[job_id].pop()

    async def stray_ready(self, job_id: str) -> None:
        queue = self._ledger.queues[queue_of(make("stray").job, 0)]
        queue.add(10**9, job_id, "ocr")

    async def miscount(self, job_id: str) -> None:
        self._ledger.counts.add(group_of(self._ledger.jobs[job_id].job), 1)


NO = "(SELECT no FROM jobs WHERE id = ?)"


class SqliteTamper:
    """Plain SQL on the file, beside the ledger that has it open."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _execute(self, sql: str, *params: Any) -> list[Any]:
        with contextlib.closing(sqlite3.connect(self._path, isolation_level=None)) as conn:
            return conn.execute(sql, params).fetchall()

    async def edit(self, job_id: str, change: Change) -> None:
        ((doc,),) = self._execute("SELECT doc FROM jobs WHERE id = ?", job_id)
        self._execute("UPDATE jobs SET doc = ? WHERE id = ?", changed(doc, change), job_id)

    async def mark_newer(self, job_id: str) -> None:
        await self.edit(job_id, lambda doc: doc.update(schema=99))
        self._execute("UPDATE jobs SET schema = 99 WHERE id = ?", job_id)

    async def extend(self, job_id: str) -> None:
        for table in ("jobs", "plans", "events"):
            self._execute(f"ALTER TABLE {table} ADD COLUMN colour")
            self._execute(f"UPDATE {table} SET colour = 'blue'")

    async def extended(self, job_id: str) -> set[str]:
        rows: list[tuple[str]] = []
        for table in ("jobs", "plans", "events"):
            rows += self._execute(f"SELECT '{table}' || rowid FROM {table} WHERE colour = 'blue'")
        return {name for (name,) in rows}

    async def ruin(self, job_id: str, what: str) -> None:
        match what:
            case "document":
                self._execute("UPDATE jobs SET doc = x'00ff' WHERE id = ?", job_id)
            case "shape":
                self._execute("UPDATE jobs SET doc = '[1, 2]' WHERE id = ?", job_id)
            case "time":
                await self.edit(job_id, lambda doc: doc.update(updated=10**18))
            case "steps":
                await self.edit(job_id, lambda doc: doc["steps"].pop())
            case "version":
                await self.edit(job_id, lambda doc: doc.update(version=99))
            case "plan":
                self._execute(f"UPDATE plans SET doc = '{{}}' WHERE no = {NO}", job_id)
            case "no plan":
                self._execute(f"DELETE FROM plans WHERE no = {NO}", job_id)
            case "ready":
                self._execute("UPDATE jobs SET ready = 'x' WHERE id = ?", job_id)

    async def lose_job(self, job_id: str) -> None:
        self._execute("DELETE FROM jobs WHERE id = ?", job_id)

    async def lose_claim(self, claim: Claim) -> None:
        self._execute("DELETE FROM claims WHERE claim_hash = ?", claim.claim_hash)

    async def lose_ready(self, job_id: str) -> None:
        self._execute("DELETE FROM ready WHERE job_no = (SELECT no FROM jobs WHERE id = ?)", job_id)

    async def lose_due(self, job_id: str) -> None:
        self._execute("UPDATE jobs SET due_at = NULL WHERE id = ?", job_id)

    async def lose_events(self, job_id: str) -> None:
        self._execute(
            "DELETE FROM events WHERE no = (SELECT max(e.no) FROM events AS e"
            " JOIN jobs ON jobs.no = job_no WHERE id = ?)",
            job_id,
        )

    async def stray_ready(self, job_id: str) -> None:
        self._execute(
            "INSERT INTO ready VALUES ('ocr-service', 15, 'tenant_a', 1000000000,"
            " coalesce((SELECT no FROM jobs WHERE id = ?), 99), 'ocr')",
            job_id,
        )

    async def miscount(self, job_id: str) -> None:
        self._execute("UPDATE inflight SET count = count + 1")
