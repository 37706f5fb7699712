"""What lets a worker answer: addresses and a token in the directive, checked on the way back."""

from collections.abc import Mapping
from typing import Any

from lucius.api.tokens import CallbackTokens
from lucius.core.inputs import Callback


class ReplyTokens:
    """`required`: a reply over the bus without a token is refused.

    `public_url`: where the API is; empty: this process does not know, so directives name no URLs. `prefix`:
    what the names of topics begin with on the broker.
    """

    def __init__(
        self, tokens: CallbackTokens, public_url: str, *, required: bool, prefix: str = ""
    ) -> None:
        self._tokens = tokens
        kinds = ("ack", "result", "heartbeat", "release") if public_url else ()
        self._urls = {kind: f"{public_url.rstrip('/')}/v1/callbacks/{kind}" for kind in kinds}
        self._required = required
        self._prefix = prefix

    def decorate(self, body: dict[str, Any]) -> dict[str, Any]:
        """What a directive needs to be answered; minted at publish, stored nowhere."""
        body["reply_topic"] = f"{self._prefix}{body['reply_topic']}"
        if self._urls:
            body["callback_urls"] = dict(self._urls)
        body["callback_token"] = self._tokens.mint(
            body["tenant_id"], body["jobId"], body["stepId"], body["attempt_no"], body["lease_id"]
        )
        return body

    def guard(self, body: Mapping[str, Any], job_id: str, received: Callback) -> str | None:
        """Why a reply of the bus is refused: it must carry a token where so configured, and the right one."""
        token = body.get("callback_token")
        if token is None:
            return "the reply carries no callback token" if self._required else None
        bound = (job_id, received.step_id, received.attempt_no, received.lease_id)
        if self._tokens.verify(str(token), *bound) is None:
            return "the callback token is not for this attempt"
        return None
