"""Head and body of an answer are one write to the socket, and nothing of it is lost at the end."""

import asyncio
from unittest.mock import Mock

from lucius.http.server import ClientTransport


def transport() -> tuple[ClientTransport, Mock]:
    inner = Mock()
    inner.is_closing.return_value = False
    inner.get_write_buffer_size.return_value = 0
    return ClientTransport(inner, lambda: False), inner


async def test_what_is_written_in_one_turn_goes_out_together() -> None:
    client, inner = transport()
    client.write(b"head ")
    client.write(bytearray(b"body"))
    assert inner.write.call_count == 0
    assert (client.untaken, client.taken) == (9, 0)
    await asyncio.sleep(0)
    inner.write.assert_called_once_with(b"head body")
    assert (client.untaken, client.taken) == (0, 9)
    client.write(b"more")
    await asyncio.sleep(0)
    inner.write.assert_called_with(b"more")


async def test_an_end_sends_what_was_written_first() -> None:
    for end in (ClientTransport.close, ClientTransport.hang_up):
        client, inner = transport()
        client.write(b"answer")
        end(client)
        assert [call[0] for call in inner.method_calls if call[0] in ("write", "close")] == [
            "write",
            "close",
        ]


async def test_an_abort_sends_nothing_more() -> None:
    client, inner = transport()
    client.write(b"answer")
    client.abort()
    await asyncio.sleep(0)
    assert inner.write.call_count == 0


async def test_the_end_of_the_socket_takes_what_was_held_along() -> None:
    client, inner = transport()
    client.write(b"answer")
    inner.is_closing.return_value = True
    await asyncio.sleep(0)
    assert inner.write.call_count == 0
