"""Lists of jobs, newest first, at a cost that does not grow with the ledger.

The most selective filter picks an index; what the index cannot decide is checked on a bounded number
of rows. Where that finds nothing, the index of the type is tried too. So what is found at once may be
short, or even empty where each filter alone matches much, and still have a cursor.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

from lucius.adapters.ledgers.rules import PageEnd, Unreadable, cursor_of, matches_inside, place_of
from lucius.adapters.ledgers.sqlite.queries import JOB_COLUMNS, JobRow, read_job
from lucius.adapters.ledgers.sqlite.schema import ForeignErrors, connect_readonly
from lucius.adapters.ledgers.stored.json_form import micros
from lucius.core.errors import LedgerRowUnreadableError, LedgerTooNewError
from lucius.core.job import Job
from lucius.ports.ledger import JobQuery, looks_inside

MOST_SCANNED: Final = 500
MOST_BYTES: Final = 8 << 20
"""Of the stored jobs of a page; the one that passes it is the last."""
MOST_STREAMS: Final = 64
NEWEST_FIRST: Final = "ORDER BY created_at DESC, no DESC"


class Term(NamedTuple):
    sql: str
    params: tuple[Any, ...] = ()


class Scan(NamedTuple):
    """Streams of the index `by`, to be merged, and what is left to check on each row."""

    by: str
    streams: Sequence[Term]
    residue: Sequence[Term]


class Scanned(NamedTuple):
    """The rows of a page, and where the scan stopped if there is more."""

    rows: Sequence[JobRow]
    stopped: PageEnd | None


def find(conn: sqlite3.Connection, query: JobQuery) -> Scanned:
    conn.execute("BEGIN")
    try:
        return _first(_walk(conn, query, scan) for scan in _scans(query))
    finally:
        conn.execute("COMMIT")


def _first(walks: Iterable[Scanned]) -> Scanned:
    """The first that finds something or comes to its end; else the one that went furthest."""
    furthest = Scanned((), None)
    for found in walks:
        if found.rows or found.stopped is None:
            return found
        if furthest.stopped is None or found.stopped < furthest.stopped:
            furthest = found
    return furthest


def count_in(path: Path, query: JobQuery) -> int:
    """All that match. Nothing is bounded here, so it is no work for the event loop."""
    with ForeignErrors(path), closing(connect_readonly(path)) as conn:
        if looks_inside(query):
            return _count_inside(conn, query)
        return _count(conn, query, _scan(query))


def _count_inside(conn: sqlite3.Connection, query: JobQuery) -> int:
    """What no index has is looked for in every job that matches otherwise."""
    total, asked = 0, replace(query, limit=MOST_SCANNED, cursor=None)
    unreadable = Unreadable()
    while True:
        found = find(conn, asked)
        total += sum(matches_inside(query, job) for job in decode(found.rows, unreadable))
        cursor = next_cursor(asked, found)
        if cursor is None:
            return total
        asked = replace(asked, cursor=cursor)


def _count(conn: sqlite3.Connection, query: JobQuery, scan: Scan) -> int:
    """Streams have no row in common, so their counts add up."""
    conn.execute("BEGIN")
    rest = [*_span(query), *scan.residue]
    where = "".join(f" AND {term.sql}" for term in rest)
    values = tuple(value for term in rest for value in term.params)
    return sum(
        conn.execute(
            f"SELECT count(*) FROM jobs INDEXED BY {scan.by} WHERE {stream.sql}{where}",
            (*stream.params, *values),
        ).fetchone()[0]
        for stream in scan.streams
    )


def decode(rows: Sequence[JobRow], unreadable: Unreadable) -> Iterator[Job]:
    """Jobs that a newer version wrote are left to newer processes."""
    for row in rows:
        try:
            yield read_job(row)
        except LedgerTooNewError:
            continue
        except LedgerRowUnreadableError as error:
            unreadable.note(error)


def next_cursor(query: JobQuery, found: Scanned) -> str | None:
    return cursor_of(query, found.stopped) if found.stopped else None


# -- choosing an index -----------------------------------------------------------------------


def _scans(query: JobQuery) -> Iterator[Scan]:
    """The best, then another way to the same rows: a type may be rare where a state is common."""
    scan = _scan(query)
    if scan.streams:
        yield scan
        if query.request_type and not query.dlq and scan.by != "jobs_by_type":
            kind, *rest = _by_type(query)
            yield Scan("jobs_by_type", [kind], rest)


def _by_type(query: JobQuery) -> list[Term]:
    tenants = [Term("tenant = ?", (tenant,)) for tenant in sorted(query.tenant_ids or ())]
    states = [Term("state = ?", (state.value,)) for state in sorted(query.states or ())]
    kind = Term("request_type = ?", (query.request_type,))
    return [kind, *_any_of("tenant", tenants), *_any_of("state", states)]


def _scan(query: JobQuery) -> Scan:
    tenants = [Term("tenant = ?", (tenant,)) for tenant in sorted(query.tenant_ids or ())]
    states = [Term("state = ?", (state.value,)) for state in sorted(query.states or ())]
    by_tenant, by_state = query.tenant_ids is not None, query.states is not None
    if (by_tenant and not tenants) or (by_state and not states):
        return Scan("", (), ())
    kinds = [Term("request_type = ?", (query.request_type,))] if query.request_type else []
    both = [Term(f"{t.sql} AND {s.sql}", t.params + s.params) for t, s in product(tenants, states)]
    one_tenant, one_state = _any_of("tenant", tenants), _any_of("state", states)
    if query.dlq:
        dlq = [Term("dlq = 1")]
        if by_tenant and len(tenants) <= MOST_STREAMS:
            streams = [Term(f"dlq = 1 AND {t.sql}", t.params) for t in tenants]
            return Scan("jobs_dlq_by_tenant", streams, [*one_state, *kinds])
        return Scan("jobs_dlq", dlq, [*one_tenant, *one_state, *kinds])
    if by_tenant and by_state and len(both) <= MOST_STREAMS:
        return Scan("jobs_by_tenant_state", both, kinds)
    if by_tenant and len(tenants) <= MOST_STREAMS:
        return Scan("jobs_by_tenant", tenants, [*one_state, *kinds])
    if by_state:
        return Scan("jobs_by_state", states, [*one_tenant, *kinds])
    if kinds:
        return Scan("jobs_by_type", kinds, one_tenant)
    return Scan("jobs_by_time", [Term("1")], one_tenant)


def _any_of(column: str, terms: Sequence[Term]) -> list[Term]:
    if not terms:
        return []
    values = tuple(value for term in terms for value in term.params)
    return [Term(f"{column} IN ({','.join('?' * len(values))})", values)]


# -- walking it ------------------------------------------------------------------------------


def _walk(conn: sqlite3.Connection, query: JobQuery, scan: Scan) -> Scanned:
    wanted = query.limit + 1
    most = max(MOST_SCANNED, wanted) if scan.residue else wanted
    candidates = _candidates(query, scan, most)
    check = " AND ".join(term.sql for term in scan.residue) or "1"
    values = tuple(value for term in scan.residue for value in term.params)
    found = conn.execute(
        f"WITH found AS (SELECT no, created_at FROM ({candidates.sql}) CROSS JOIN jobs"
        f" USING (no, created_at) WHERE {check} {NEWEST_FIRST} LIMIT ?)"
        f" SELECT found.created_at, found.no, {JOB_COLUMNS} FROM found"
        " CROSS JOIN jobs USING (no) LEFT JOIN plans USING (no)"
        " ORDER BY found.created_at DESC, found.no DESC",
        (*candidates.params, *values, wanted),
    )
    page, last, room = list[JobRow](), None, MOST_BYTES
    for created_at, no, *columns in found:
        if len(page) == query.limit or room < 0:
            return Scanned(page, last)
        page.append(row := JobRow(*columns))
        last, room = PageEnd(created_at, no), room - _size(row.plan) - _size(row.doc)
    return Scanned(page, _last_scanned(conn, candidates, most) if scan.residue else None)


def _size(stored: Any) -> int:
    return len(stored) if isinstance(stored, bytes | str) else 0


def _candidates(query: JobQuery, scan: Scan, most: int) -> Term:
    """The first rows of all streams together."""
    bounds = _bounds(query)
    where = "".join(f" AND {bound.sql}" for bound in bounds)
    values = tuple(value for bound in bounds for value in bound.params)
    streams = [
        f"SELECT * FROM (SELECT no, created_at FROM jobs INDEXED BY {scan.by}"
        f" WHERE {stream.sql}{where} {NEWEST_FIRST} LIMIT {most})"
        for stream in scan.streams
    ]
    params = tuple(value for stream in scan.streams for value in stream.params + values)
    return Term(f"{' UNION ALL '.join(streams)} {NEWEST_FIRST} LIMIT {most}", params)


def _bounds(query: JobQuery) -> list[Term]:
    after = place_of(query)
    bounds = _span(query)
    return bounds if after is None else [Term("(created_at, no) < (?, ?)", after), *bounds]


def _span(query: JobQuery) -> list[Term]:
    bounds = []
    if query.created_from is not None:
        bounds.append(Term("created_at >= ?", (micros(query.created_from),)))
    if query.created_to is not None:
        bounds.append(Term("created_at < ?", (micros(query.created_to),)))
    return bounds


def _last_scanned(conn: sqlite3.Connection, candidates: Term, most: int) -> PageEnd | None:
    row = conn.execute(
        f"SELECT created_at, no FROM ({candidates.sql}) {NEWEST_FIRST} LIMIT 1 OFFSET ?",
        (*candidates.params, most - 1),
    ).fetchone()
    return PageEnd(*row) if row else None
