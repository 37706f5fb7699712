"""Replies that break the contract, each in one way."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

from lucius.core.errors import BusUnavailableError, PublishRefusedError
from lucius.dev.certificate.trial import path_of
from lucius.platform import Replies, ReplyAnswer
from lucius.platform.messages import Directive
from lucius.ports.bus import Message
from tests.certificate.worker import Defect


class Said(Replies):
    """`kind`: which replies are concerned; all if it is empty."""

    def __init__(self, replies: Replies, kind: str = "", **changes: Any) -> None:
        self._replies, self._kind, self._changes = replies, kind, changes

    def meant(self, message: Message) -> bool:
        return self._kind in ("", message.body["type"])

    async def on(self, directive: Directive, message: Message, **changes: Any) -> ReplyAnswer:
        body = {**message.body, **changes}
        return await self._replies.send(directive, replace(message, body=body))


def said(kind: Callable[..., Replies], *args: Any, **changes: Any) -> Defect:
    return Defect(replies=lambda replies: kind(replies, *args, **changes))


class Altered(Said):
    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        return await self.on(directive, message, **(self._changes if self.meant(message) else {}))


class Unsaid(Said):
    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        return ReplyAnswer() if self.meant(message) else await self.on(directive, message)


class Twice(Said):
    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        if self.meant(message):
            await self.on(directive, message)
        return await self.on(directive, message)


class AckLast(Said):
    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        if message.body["type"] == "ACK":
            self._ack = message
            return ReplyAnswer()
        await self.on(directive, message)
        return await self.on(directive, self._ack)


class TakesSilenceForYes(Said):
    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        try:
            return await self.on(directive, message)
        except BusUnavailableError:
            if not self.meant(message):
                raise
            return ReplyAnswer()


class TakesNoForYes(Said):
    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        try:
            return await self.on(directive, message)
        except PublishRefusedError:
            if not self.meant(message):
                raise
            return ReplyAnswer()


class TakesNoForSilence(Said):
    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        try:
            return await self.on(directive, message)
        except PublishRefusedError as error:
            raise BusUnavailableError(str(error)) from error


class TellsItsToken(Said):
    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        return await self.on(directive, message, note=message.body["callback_token"])


class ChangesItsMind(Said):
    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        if message.body["type"] != "RESULT":
            return await self.on(directive, message)
        return await self.on(directive, message, output_ref=f"file:///{uuid4()}")


class OneForAll(Said):
    _first: Any = None

    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        if message.body["type"] != "RESULT":
            return await self.on(directive, message)
        self._first = self._first or message.body["output_ref"]
        return await self.on(directive, message, output_ref=self._first)


class LosesOutput(Said):
    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        if message.body["type"] == "RESULT":
            path_of(message.body["output_ref"]["uri"]).unlink()
        return await self.on(directive, message)


class VanishesAtCancel(Said):
    _cancelled = False

    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        if self._cancelled:
            return ReplyAnswer()
        answer = await self.on(directive, message)
        self._cancelled = answer.cancel_requested
        return answer


class RetriesCancelled(Said):
    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        cancelled = message.body.get("error", {}).get("code") == "CANCELLED"
        return await self.on(
            directive, message, **({"status": "FAILED_RETRY"} if cancelled else {})
        )


class GivesUp(Said):
    async def send(self, directive: Directive, message: Message) -> ReplyAnswer:
        failed = message.body.get("status") == "FAILED_RETRY"
        return await self.on(directive, message, **({"status": "FAILED_FINAL"} if failed else {}))


HEEDLESS = Defect(replies=lambda replies: TakesNoForYes(replies, "HEARTBEAT"), heeds_stale=False)
