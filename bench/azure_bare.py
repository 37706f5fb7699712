"""The calls that a ledger makes of a table service: noted, and made again of the SDK by a plain loop."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.data.tables.aio import TableClient, TableServiceClient

from lucius.adapters.ledgers.azure.store import (
    ETAG,
    PARTITION,
    ROW,
    Act,
    Change,
    Etags,
    Refused,
    Row,
    Store,
)
from lucius.adapters.ledgers.azure.tables import _filter, _operation


@dataclass
class Call:
    name: str
    table: str
    given: tuple[Any, ...]
    named: dict[str, Any] = field(default_factory=dict)
    answer: Etags | Refused | None = None


class Recorder:
    """Notes every call with its answer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: list[Call] = []
        self.dated = store.dated

    async def get(
        self, table: str, partition: str, row: str, columns: Sequence[str] | None = None
    ) -> Row | None:
        self.calls.append(Call("get", table, (partition, row, columns)))
        found = await self._store.get(table, partition, row, columns)
        self.calls[-1].answer = [found[ETAG]] if found is not None else None
        return found

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
        named = {"equal": equal, "columns": columns, "page": page}
        call = Call("scan", table, (partition, first, end), named, [])
        self.calls.append(call)
        async for row in self._store.scan(table, partition, first, end, **named):  # type: ignore[arg-type]
            call.answer = [*call.answer, row[ETAG]]  # type: ignore[misc]
            yield row

    async def commit(
        self, table: str, changes: Sequence[Change], *, once: bool = False
    ) -> Etags | Refused:
        call = Call("commit", table, (list(changes),))
        self.calls.append(call)
        call.answer = await self._store.commit(table, changes, once=once)
        return call.answer

    async def close(self) -> None:
        """The bench closes the store itself."""


def prepared(calls: Sequence[Call], renamed: Callable[[str], str]) -> list[Call]:
    """As the SDK takes them: nothing is left to be made of them in the loop."""
    return [_prepared(call, renamed(call.table)) for call in calls]


def _prepared(call: Call, table: str) -> Call:
    if call.name == "get":
        partition, row, columns = call.given
        select = [PARTITION, ROW, *columns] if columns else None
        return Call("get", table, (partition, row), {"select": select}, call.answer)
    if call.name == "scan":
        columns = call.named["columns"]
        named = {
            "select": [PARTITION, ROW, *columns] if columns else None,
            "results_per_page": call.named["page"],
        }
        partition, first, end = call.given
        where = _filter(partition, first, end, call.named["equal"] or {})
        return Call("scan", table, (where,), named, call.answer)
    (changes,) = call.given
    single = len(changes) == 1 and not (changes[0].act is Act.DELETE and changes[0].etag)
    name = changes[0].act.value if single else "transaction"
    return Call(name, table, ([_operation(each) for each in changes],), {}, call.answer)


class BareLoop:
    def __init__(self, connection: str) -> None:
        self._service = TableServiceClient.from_connection_string(connection, retry_total=0)
        self._clients: dict[str, TableClient] = {}
        self._etags: dict[str, str] = {}
        """Of the recorded run, and of this one."""

    async def run(self, calls: Sequence[Call]) -> None:
        for call in calls:
            if call.table not in self._clients:
                self._clients[call.table] = self._service.get_table_client(call.table)
            try:
                etags = await self._made(self._clients[call.table], call)
            except HttpResponseError:
                assert call.answer is None or isinstance(call.answer, Refused), call
                continue
            assert isinstance(call.answer, list | tuple), call
            self._etags.update(zip(call.answer, etags, strict=True))

    async def _made(self, client: TableClient, call: Call) -> list[Any]:
        if call.name == "get":
            entity = await client.get_entity(*call.given, **call.named)
            return [entity.metadata[ETAG]]
        if call.name == "scan":
            found = client.query_entities(*call.given, **call.named)
            return [entity.metadata[ETAG] async for entity in found]
        (operations,) = call.given
        for _, _, options in operations:
            if options.get("match_condition") is MatchConditions.IfNotModified:
                options["etag"] = self._etags[options["etag"]]
        if call.name == "transaction":
            return [each.get(ETAG) for each in await client.submit_transaction(operations)]
        _, entity, options = operations[0]
        return [(await _one(client, call.name, entity, options)).get(ETAG)]

    async def close(self) -> None:
        await self._service.close()


async def _one(client: TableClient, name: str, entity: Any, options: Any) -> Mapping[str, Any]:
    if name == Act.INSERT:
        return await client.create_entity(entity)
    if name == Act.DELETE:
        await client.delete_entity(entity, **options)
        return {}
    if name == Act.UPSERT:
        return await client.upsert_entity(entity, **options)
    return await client.update_entity(entity, **options)
