"""Azure Table Storage through its SDK: requests, refusals, throttling and the date of the service.

No exception of the SDK leaves this file. What was throttled is tried again, and so is what got no answer:
every write of the ledger is guarded by ETags or keys, so that the second finds that the first has landed.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from random import uniform
from time import monotonic
from typing import Any, Final, TypeVar

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError
from azure.core.pipeline.transport import AioHttpTransport
from azure.data.tables import EdmType, EntityProperty, TableTransactionError, UpdateMode
from azure.data.tables.aio import TableClient, TableServiceClient

from lucius.adapters.ledgers.azure.store import (
    ETAG,
    EXISTS,
    MISSING,
    MOST_CHANGES,
    MOVED,
    PARTITION,
    ROW,
    Act,
    Change,
    Etags,
    Refused,
    Row,
)
from lucius.core.errors import LedgerError, LedgerUnavailableError
from lucius.system.instruments import Count, Instruments

# What the Azure ledgers count.

THROTTLED_STATUSES = ("429", "503")


class TableInstruments(Instruments):
    def __init__(self) -> None:
        self.requests = Count(
            "lucius_table_requests_total", "Requests to Azure Table Storage", ("kind",)
        )
        self.throttled = Count(
            "lucius_table_throttled_total",
            "Requests that Azure Table Storage turned away because of too many; each is tried again",
            ("status",),
        )
        for status in THROTTLED_STATUSES:
            self.throttled.expect(status)


T = TypeVar("T")

THROTTLED: Final = (429, 503)
TRIES: Final = 8
"""Of a request that is throttled; the last comes after about 13 seconds in all."""
FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 5.0
UNSURE_TRIES: Final = 3
"""Of a request that gets no answer: it may have been performed."""
NO_TABLE: Final = "TableNotFound"
INT32: Final = 2**31

Pause = Callable[[float], Awaitable[None]]


class Watch(AioHttpTransport):  # type: ignore[misc]  # the SDK loads it lazily, untyped
    """Counts requests, and keeps the date of the last answer with the moment at which it came."""

    def __init__(self, metrics: TableInstruments, **waits: float) -> None:
        super().__init__(**waits)
        self._metrics = metrics
        self.dated: tuple[datetime, float] | None = None

    async def send(self, request: Any, **config: Any) -> Any:
        self._metrics.requests.add("read" if request.method == "GET" else "write")
        response = await super().send(request, **config)
        said = response.headers.get("Date")
        if said:
            self.dated = (parsedate_to_datetime(said), monotonic())
        return response


class AzureTables:
    """A `Store` on one storage account."""

    def __init__(
        self,
        service: TableServiceClient,
        watch: Watch,
        metrics: TableInstruments,
        *,
        credential: Any = None,
        pause: Pause = asyncio.sleep,
    ) -> None:
        self._service = service
        self._watch = watch
        self.instruments = metrics
        self._credential = credential
        self._pause = pause
        self._clients: dict[str, TableClient] = {}
        self._settings: dict[str, str] = {}
        """By table, the setting that names it."""

    def dated(self) -> tuple[datetime, float] | None:
        return self._watch.dated

    async def close(self) -> None:
        await self._service.close()
        if self._credential is not None:
            await self._credential.close()

    def _client(self, table: str) -> TableClient:
        if table not in self._clients:
            self._clients[table] = self._service.get_table_client(table)
        return self._clients[table]

    # -- requests ----------------------------------------------------------------------------

    async def ensure(self, table: str, setting: str) -> None:
        """Create the table if it is not there. LedgerError, naming the setting, if it may not be."""
        self._settings[table] = setting
        try:
            await self._sent(lambda: self._service.create_table_if_not_exists(table))
        except LedgerForbiddenError as error:
            try:
                await self.get(table, "-", "-")
            except LedgerError:
                raise LedgerForbiddenError(
                    f"table {table} ({setting}) cannot be created: {error}"
                ) from error

    async def remove(self, table: str) -> None:
        await self._sent(lambda: self._service.delete_table(table))

    async def get(
        self, table: str, partition: str, row: str, columns: Sequence[str] | None = None
    ) -> Row | None:
        select = [PARTITION, ROW, *columns] if columns else None
        client = self._client(table)

        async def request() -> Row | None:
            try:
                return _read(await client.get_entity(partition, row, select=select))
            except HttpResponseError as error:
                if error.status_code == MISSING and not _no_table(error):
                    return None
                raise

        return await self._asked(table, request)

    async def scan(
        self,
        table: str,
        partition: str | None,
        first: str = "",
        end: str | None = None,
        *,
        equal: Mapping[str, str | bool] | None = None,
        columns: Sequence[str] | None = None,
        page: int = 1000,
    ) -> AsyncIterator[Row]:
        where = _filter(partition, first, end, equal or {})
        select = [PARTITION, ROW, *columns] if columns else None
        client, going_on = self._client(table), None

        async def request() -> tuple[list[Row], Any]:
            found_all = client.query_entities(where, select=select, results_per_page=page)
            pages: Any = found_all.by_page(going_on)
            async for found in pages:
                return [_read(row) async for row in found], pages.continuation_token
            return [], None

        while True:
            rows, going_on = await self._asked(table, request)
            for row in rows:
                yield row
            if going_on is None:
                return

    async def commit(
        self, table: str, changes: Sequence[Change], *, once: bool = False
    ) -> Etags | Refused:
        if len(changes) > MOST_CHANGES:
            raise LedgerError(
                f"the ledger cannot store this: {len(changes)} rows in one transaction"
            )
        client = self._client(table)

        async def request() -> Etags | Refused:
            try:
                if len(changes) == 1 and not _guarded_delete(changes[0]):
                    return [(await _single(client, changes[0])).get(ETAG)]
                made = await client.submit_transaction([_operation(each) for each in changes])
                return [meta.get(ETAG) for meta in made]
            except HttpResponseError as error:
                if error.status_code in (MISSING, EXISTS, MOVED) and not _no_table(error):
                    index = error.index if isinstance(error, TableTransactionError) else 0
                    return Refused(index, error.status_code)
                raise

        return await self._asked(table, request, 1 if once else UNSURE_TRIES)

    async def _asked(
        self, table: str, request: Callable[[], Awaitable[T]], tries: int = UNSURE_TRIES
    ) -> T:
        """The answer of one table, whose absence is said with its name."""
        try:
            return await self._sent(request, tries)
        except TableMissingError as error:
            setting = self._settings.get(table, "a setting")
            raise TableMissingError(
                f"table {table} ({setting}) does not exist: create it, or start a process that may:"
                f" it creates what is missing. {error}"
            ) from error

    async def _sent(self, request: Callable[[], Awaitable[T]], tries: int = UNSURE_TRIES) -> T:
        """The answer. `tries`: how often a request that gets no answer is sent."""
        unsure, last = 0, Exception()
        for tried in range(1, TRIES + 1):
            try:
                return await request()
            except HttpResponseError as error:
                status, last = error.status_code or 500, error
                if status in THROTTLED:
                    self.instruments.throttled.add(str(status))
                elif status < 500:
                    raise _mapped(error) from error
                else:
                    unsure += 1
            except (AzureError, OSError, TimeoutError) as error:
                last, unsure = error, unsure + 1
            if unsure == tries:
                break
            await self._pause(wait_after(tried))
        raise _unknown(last) from last


def wait_after(tried: int) -> float:
    """Seconds, with jitter: those who were turned away together do not come back together."""
    most = min(FIRST_WAIT * 2**tried, LONGEST_WAIT)
    return uniform(most / 2, most)


# -- what it answers -------------------------------------------------------------------------


class LedgerForbiddenError(LedgerUnavailableError):
    """The storage account refuses the caller. An administrator may change that while we run."""


class TableMissingError(LedgerUnavailableError):
    """A table was deleted, or never created. An administrator may create it while we run."""


def _no_table(error: HttpResponseError) -> bool:
    """The SDK gives the service's code here or there, depending on the request."""
    code = getattr(error, "error_code", None)
    return NO_TABLE in (getattr(code, "value", code), code) or NO_TABLE in str(error)


def _mapped(error: HttpResponseError) -> LedgerError:
    if _no_table(error):
        return TableMissingError(_said(error))
    if error.status_code in (401, 403):
        return LedgerForbiddenError(
            "Azure Table Storage refuses the caller. LUCIUS_TABLE_CONNECTION needs an account key, a"
            " SAS for tables, or an identity with the role Storage Table Data Contributor:"
            f" {_said(error)}"
        )
    if error.status_code in (400, 413):
        return LedgerError(f"the ledger cannot store this: {_said(error)}")
    return _unknown(error)


def _unknown(error: Exception) -> LedgerUnavailableError:
    return LedgerUnavailableError(
        "Azure Table Storage at LUCIUS_TABLE_CONNECTION does not answer as it should:"
        f" {type(error).__name__}: {_said(error)}"
    )


def _said(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _read(entity: Mapping[str, Any]) -> Row:
    row: Row = {
        name: value.value if isinstance(value, EntityProperty) else value
        for name, value in entity.items()
    }
    row[ETAG] = getattr(entity, "metadata", {}).get(ETAG)
    return row


def _filter(
    partition: str | None, first: str, end: str | None, equal: Mapping[str, str | bool]
) -> str:
    terms = [f"RowKey ge {_quoted(first)}"]
    if partition is not None:
        terms.insert(0, f"PartitionKey eq {_quoted(partition)}")
    if end is not None:
        terms.append(f"RowKey lt {_quoted(end)}")
    for name, value in equal.items():
        said = str(value).lower() if isinstance(value, bool) else _quoted(value)
        terms.append(f"{name} eq {said}")
    return " and ".join(terms)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# -- what it is asked ------------------------------------------------------------------------


def _entity(row: Row) -> Row:
    return {
        name: EntityProperty(value, EdmType.INT64)
        if type(value) is int and not -INT32 <= value < INT32
        else value
        for name, value in row.items()
        if name != ETAG
    }


def _options(change: Change) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if change.etag is not None:
        options = {"etag": change.etag, "match_condition": MatchConditions.IfNotModified}
    if change.act is Act.REPLACE:
        options["mode"] = UpdateMode.REPLACE
    elif change.act in (Act.MERGE, Act.UPSERT):
        options["mode"] = UpdateMode.MERGE
    return options


def _operation(change: Change) -> tuple[str, Row, dict[str, Any]]:
    act = Act.REPLACE if change.act is Act.MERGE else change.act
    return act.value, _entity(change.row), _options(change)


def _guarded_delete(change: Change) -> bool:
    """Only in a transaction does the SDK say that the row is gone."""
    return change.act is Act.DELETE and change.etag is not None


async def _single(client: TableClient, change: Change) -> Mapping[str, Any]:
    entity, options = _entity(change.row), _options(change)
    match change.act:
        case Act.INSERT:
            return await client.create_entity(entity)
        case Act.REPLACE | Act.MERGE:
            return await client.update_entity(entity, **options)
        case Act.UPSERT:
            return await client.upsert_entity(entity, **options)
        case Act.DELETE:
            await client.delete_entity(entity, **options)
            return {}
