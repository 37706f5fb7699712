"""Search attributes: workflows can be found by tenant, request type and state.

A server refuses names that it does not know. So they are used only where all of them are registered, and
who should register them is told; jobs run either way.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError

from lucius.core.job import Job
from lucius.engines.temporal.workflow import STATE

log = logging.getLogger("lucius.temporal")

TENANT: Final = SearchAttributeKey.for_keyword("LuciusTenant")
REQUEST_TYPE: Final = SearchAttributeKey.for_keyword("LuciusRequestType")
NAMES: Final = (TENANT.name, REQUEST_TYPE.name, STATE.name)
KEYWORD: Final = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
LONGEST: Final = 255
"""Characters that a keyword may have where Temporal keeps it in PostgreSQL or MySQL."""
LOOK_AGAIN: Final = 60.0
"""Seconds after which names that were missing are looked for again."""


async def missing_attributes(client: Client) -> list[str]:
    """RPCError, RuntimeError: the server did not say."""
    asked = ListSearchAttributesRequest(namespace=client.namespace)
    known = (await client.operator_service.list_search_attributes(asked)).custom_attributes
    return [name for name in NAMES if known.get(name) != KEYWORD]


async def register_attributes(client: Client) -> list[str]:
    """Those that were missing. An attribute of that name and another type is an error of the server."""
    missing = await missing_attributes(client)
    if missing:
        asked = AddSearchAttributesRequest(namespace=client.namespace)
        for name in missing:
            asked.search_attributes[name] = KEYWORD
        await client.operator_service.add_search_attributes(asked)
    return missing


class Attributes:
    """Whether new workflows may carry them. It asks once, and again every minute while some are missing."""

    def __init__(self, client: Client, clock: Callable[[], float] | None = None) -> None:
        self._client = client
        self._clock = clock
        self._asking = asyncio.Lock()
        self._known = False
        self._next = 0.0
        self._warned = False

    async def of(self, job: Job) -> TypedSearchAttributes:
        """Empty where the server does not know them."""
        if not await self._are_known():
            return TypedSearchAttributes.empty
        return TypedSearchAttributes(
            [
                SearchAttributePair(TENANT, job.tenant_id[:LONGEST]),
                SearchAttributePair(REQUEST_TYPE, job.plan.request_type[:LONGEST]),
                SearchAttributePair(STATE, job.state.value),
            ]
        )

    async def _are_known(self) -> bool:
        clock = self._clock or asyncio.get_running_loop().time
        async with self._asking:
            if not self._known and clock() >= self._next:
                self._known = await self._look()
                self._next = clock() + LOOK_AGAIN
        return self._known

    async def _look(self) -> bool:
        try:
            missing = await missing_attributes(self._client)
        except (RPCError, RuntimeError) as error:
            log.info("which search attributes the Temporal server has is not known: %s", error)
            return False
        if missing and not self._warned:
            self._warned = True
            log.warning(
                "the Temporal namespace %s has no search attributes %s of type Keyword: workflows"
                " cannot be found by tenant, request type and state until `lucius temporal provision`"
                " has registered them",
                self._client.namespace,
                ", ".join(missing),
            )
        return not missing
