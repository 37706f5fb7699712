"""The SQLite file: its tables, how it is opened and upgraded, and when it is refused.

A file that is corrupt, foreign or newer than this version is never written to.
"""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from lucius.core.errors import (
    LedgerCorruptError,
    LedgerError,
    LedgerTooNewError,
    LedgerUnavailableError,
)

Migration = Sequence[str]
APPLICATION_ID: Final = int.from_bytes(b"LUCI")
MAGIC: Final = b"SQLite format 3\0"
TABLES: Final = frozenset(
    ("jobs", "plans", "events", "claims", "ready", "inflight", "probe", "notes")
)
CHECKPOINT_PAGES: Final = 2000
"""The log is copied into the file, and begun anew, after this many pages."""
LOG_BYTES: Final = 9 << 20
"""Size of the log from the start: a little more than CHECKPOINT_PAGES pages with their headers."""

MIGRATIONS: Final[tuple[Migration, ...]] = (
    (
        """CREATE TABLE jobs (
            no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL,
            request_type TEXT NOT NULL, created_at INTEGER NOT NULL, lane INTEGER NOT NULL,
            mode TEXT NOT NULL, state TEXT NOT NULL, version INTEGER NOT NULL,
            schema INTEGER NOT NULL, dlq INTEGER NOT NULL, completed_at INTEGER,
            due_at INTEGER, ready TEXT, doc BLOB NOT NULL, redrive_of TEXT)""",
        "CREATE INDEX jobs_due ON jobs (lane, due_at, schema) WHERE due_at IS NOT NULL",
        "CREATE INDEX jobs_by_time ON jobs (created_at)",
        "CREATE INDEX jobs_by_tenant ON jobs (tenant, created_at)",
        "CREATE INDEX jobs_by_state ON jobs (state, created_at)",
        "CREATE INDEX jobs_by_tenant_state ON jobs (tenant, state, created_at)",
        "CREATE INDEX jobs_by_type ON jobs (request_type, created_at)",
        "CREATE INDEX jobs_dlq ON jobs (created_at) WHERE dlq = 1",
        "CREATE INDEX jobs_dlq_by_tenant ON jobs (tenant, created_at) WHERE dlq = 1",
        "CREATE INDEX jobs_redrives ON jobs (redrive_of) WHERE redrive_of IS NOT NULL",
        """CREATE INDEX jobs_prunable ON jobs (completed_at)
            WHERE completed_at IS NOT NULL AND dlq = 0""",
        """CREATE TABLE plans (
            no INTEGER PRIMARY KEY, claim_hash TEXT NOT NULL, keyed INTEGER NOT NULL,
            doc BLOB NOT NULL)""",
        """CREATE TABLE events (
            no INTEGER PRIMARY KEY, job_no INTEGER NOT NULL, last_seq INTEGER NOT NULL,
            doc BLOB NOT NULL)""",
        "CREATE INDEX events_by_job ON events (job_no, last_seq)",
        """CREATE TABLE claims (
            tenant TEXT NOT NULL, claim_hash TEXT NOT NULL, body_hash TEXT NOT NULL,
            keyed INTEGER NOT NULL, job_id TEXT NOT NULL,
            PRIMARY KEY (tenant, claim_hash)) WITHOUT ROWID""",
        """CREATE TABLE ready (
            service TEXT NOT NULL, lane INTEGER NOT NULL, tenant TEXT NOT NULL,
            position INTEGER NOT NULL, job_no INTEGER NOT NULL, step_id TEXT NOT NULL,
            PRIMARY KEY (service, lane, tenant, position)) WITHOUT ROWID""",
        """CREATE TABLE inflight (
            tenant TEXT NOT NULL, lane INTEGER NOT NULL, mode TEXT NOT NULL,
            count INTEGER NOT NULL, PRIMARY KEY (tenant, lane, mode)) WITHOUT ROWID""",
        "CREATE TABLE probe (no INTEGER PRIMARY KEY, doc BLOB NOT NULL)",
        """CREATE TABLE notes (
            key TEXT PRIMARY KEY, holder TEXT NOT NULL, content BLOB NOT NULL,
            stamp TEXT NOT NULL) WITHOUT ROWID""",
    ),
)
"""Each makes one version of the file from the one before; `PRAGMA user_version` counts them."""


class ForeignErrors:
    """Vendor exceptions stop here; `heard` is told what they became."""

    __slots__ = ("_heard", "_path")

    def __init__(
        self, path: Path, heard: Callable[[LedgerError], None] = lambda error: None
    ) -> None:
        self._path = path
        self._heard = heard

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if isinstance(error, sqlite3.Error):
            known = ledger_error(self._path, error)
            self._heard(known)
            raise known from error


def ledger_error(path: Path, error: sqlite3.Error) -> LedgerError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return LedgerCorruptError(f"{path} is corrupt: {error}")
    return LedgerUnavailableError(f"{path}: {error}")


# -- connections -----------------------------------------------------------------------------


def connect(path: Path) -> sqlite3.Connection:
    """A connection that writes. Statements begin and end transactions themselves."""
    conn = _open(path, "rwc")
    if conn.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        # Before WAL, so that it is in the file itself and not only in its log.
        conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    conn.execute("PRAGMA journal_mode = WAL")
    conn.execute("PRAGMA synchronous = FULL")
    conn.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    conn.execute(f"PRAGMA journal_size_limit = {64 << 20}")
    conn.execute("PRAGMA cache_size = -65536")
    return conn


def allocate_log(conn: sqlite3.Connection) -> None:
    """Give the write-ahead log its blocks before it is used, so that commits overwrite instead of append.

    A sync after an append also has to store the file's new size: on a file system with a journal it takes
    about four times as long. A transaction that is larger than the cache goes to the log before it commits,
    and a rollback leaves the blocks there. Where the disk has no room for it, the log grows as usual.
    """
    cache = conn.execute("PRAGMA cache_size").fetchone()[0]
    conn.execute("PRAGMA cache_size = 16")
    try:
        conn.execute("BEGIN IMMEDIATE")
        conn.execute("CREATE TABLE filling (data BLOB)")
        conn.execute("INSERT INTO filling VALUES (zeroblob(?))", (LOG_BYTES,))
    except sqlite3.OperationalError:
        pass
    finally:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        conn.execute(f"PRAGMA cache_size = {cache}")


def connect_readonly(path: Path) -> sqlite3.Connection:
    conn = _open(path, "ro")
    conn.execute("PRAGMA query_only = 1")
    return conn


def _open(path: Path, mode: str) -> sqlite3.Connection:
    conn = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=512,
    )
    conn.execute("PRAGMA temp_store = MEMORY")
    return conn


# -- refusing --------------------------------------------------------------------------------


def probe(path: Path, newest: int = len(MIGRATIONS)) -> None:
    """Refuse a file that this version must not touch. A missing or empty one is fine."""
    if not path.exists() or path.stat().st_size == 0:
        return
    header = _header(path)
    if header[:16] != MAGIC:
        raise LedgerCorruptError(f"{path} is not a ledger: it does not begin as a SQLite file")
    if int.from_bytes(header[68:72]) != APPLICATION_ID:
        raise LedgerCorruptError(f"{path} is not a ledger: some other program wrote it")
    _check_version(path, int.from_bytes(header[60:64]), newest)
    _check_size(path, header)
    _check_tables(path, newest)


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        header = file.read(100)
    if len(header) < 100:
        raise LedgerCorruptError(f"{path} is not a ledger: it is only {len(header)} bytes long")
    return header


def _check_version(path: Path, version: int, newest: int) -> None:
    if version > newest:
        raise LedgerTooNewError(
            f"{path} has schema version {version}; this version of lucius knows up to {newest}."
            " Use the newer version, or restore a backup"
        )


def _check_size(path: Path, header: bytes) -> None:
    """Pages that the header counts must be there, unless the log still holds them."""
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:
        return
    page = int.from_bytes(header[16:18])
    page = 65536 if page == 1 else page
    if int.from_bytes(header[28:32]) * page > path.stat().st_size:
        raise LedgerCorruptError(f"{path} is corrupt: it has been cut short")


def _check_tables(path: Path, newest: int) -> None:
    with ForeignErrors(path):
        conn = connect_readonly(path)
        try:
            version = conn.execute("PRAGMA user_version").fetchone()[0]
            _check_version(path, version, newest)
            rows = conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            missing = TABLES - {name for (name,) in rows}
            if version and missing:
                raise LedgerCorruptError(f"{path} is corrupt: no table {', '.join(missing)}")
            for name in TABLES if version else ():
                conn.execute(f"SELECT * FROM {name} LIMIT 1").fetchall()
        finally:
            conn.close()


# -- upgrading -------------------------------------------------------------------------------


def version_of(conn: sqlite3.Connection) -> int:
    return int(conn.execute("PRAGMA user_version").fetchone()[0])


def check_upgraded(path: Path, conn: sqlite3.Connection) -> None:
    """LedgerError for a file of an older version: what only reads it does not upgrade it."""
    version = version_of(conn)
    if version < len(MIGRATIONS):
        raise LedgerError(
            f"{path} has schema version {version}; a server of this version upgrades it to"
            f" {len(MIGRATIONS)} when it starts: run `lucius up` on it once"
        )


def migrate(conn: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring the file to the newest version, one transaction each."""
    for version in range(version_of(conn), len(migrations)):
        conn.execute("BEGIN IMMEDIATE")
        try:
            for statement in migrations[version]:
                conn.execute(statement)
            conn.execute(f"PRAGMA user_version = {version + 1}")
            conn.execute("COMMIT")
        except BaseException:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
            raise
