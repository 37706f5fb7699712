"""The fork server as the event loop sees it: children are asked for, and heard of when they end."""

import asyncio
import contextlib
import logging
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

from lucius.platform.errors import ProcessDiedError
from lucius.platform.isolation.frames import (
    FrameError,
    Header,
    PipeFrame,
    frame,
    read_frame,
)
from lucius.platform.service import Service, ServiceError
from lucius.system.machine import python_command

log = logging.getLogger("lucius.platform.isolation.forks")
START_SECONDS: Final = 60.0
"""How long the services may take to be imported, and a child to be forked."""
END_SECONDS: Final = 5.0
REPORT_BYTES: Final = 1 << 20
PASSED_ON: Final = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|TZ|TMPDIR|TMP|TEMP|VIRTUAL_ENV|(DY)?LD_LIBRARY_PATH"
    r"|SSL_CERT_(FILE|DIR)|(LC_|PYTHON|OMP_|MKL_|OPENBLAS_)\w*"
)
"""Variables that an interpreter and native libraries go by. None of them holds a secret."""


Ended = asyncio.Future[str]
"""How a child ended, once it has."""
Born = tuple[int, Ended]


class Child:
    """One child process, and the socket that leads to it."""

    def __init__(
        self,
        born: "Born",
        forks: "ForkServer",
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.pid, self._ended = born
        self.executed = 0
        self.memory_when_new = resident(self.pid)
        self._forks = forks
        self._reader = reader
        self._writer = writer
        self._dead = False

    @property
    def alive(self) -> bool:
        return not self._dead and not self._ended.done()

    async def send(self, header: Header, body: bytes = b"") -> None:
        """ConnectionError: it has gone."""
        for part in frame(header, body):
            self._writer.write(part)
        await self._writer.drain()

    async def receive(self, limit: int) -> PipeFrame:
        return await read_frame(self._reader, limit)

    async def how_it_ended(self) -> str:
        try:
            async with asyncio.timeout(END_SECONDS):
                return await asyncio.shield(self._ended)
        except TimeoutError:
            return "it closed its connection"

    def kill(self) -> None:
        if not self._dead:
            self._dead = True
            self._writer.close()
            self._forks.kill(self.pid)


class ForkServer:
    """One for a process, whatever number of services it has. It starts with the first child."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._listening: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._services: dict[int, Service] = {}
        self._refused: dict[int, str] = {}
        self._forking: dict[int, asyncio.Future[Born]] = {}
        self._exits: dict[int, Ended] = {}
        self._serial = 0

    # -- children ----------------------------------------------------------------------------

    async def learn(self, service: Service) -> int:
        """Have a service imported, so that its children start with it."""
        async with self._starting:
            control = self._started()
            for number, known in self._services.items():
                if known is service:
                    return number
            number = len(self._services)
            self._services[number] = service
            order = {
                "do": "learn",
                "service": number,
                "path": [each for each in sys.path if each],
                "environment": own_variables(service, os.environ),
            }
            parts = frame(order, pickled(service))
            await asyncio.get_running_loop().sock_sendall(control, b"".join(parts))
            return number

    async def fork(self, service: Service) -> Child:
        try:
            number = await self.learn(service)
            ours, theirs = socket.socketpair()
            try:
                born = await self._forked(number, theirs)
                reader, writer = await asyncio.open_unix_connection(sock=ours)
            except BaseException:
                ours.close()
                raise
            finally:
                theirs.close()
        except (OSError, TimeoutError) as error:
            raise ProcessDiedError(f"no process could be started: {error!r}") from error
        return Child(born, self, reader, writer)

    async def _forked(self, number: int, channel: socket.socket) -> Born:
        if self._control is None:
            raise ConnectionResetError("the fork server has ended")
        self._serial += 1
        serial = self._serial
        order = frame({"do": "fork", "service": number, "serial": serial})
        forked: asyncio.Future[Born] = asyncio.get_running_loop().create_future()
        self._forking[serial] = forked
        try:
            socket.send_fds(self._control, [b"".join(order)], [channel.fileno()])
            self._check_refused(number, forked)
            async with asyncio.timeout(START_SECONDS):
                return await forked
        finally:
            del self._forking[serial]

    def _check_refused(self, number: int, forked: asyncio.Future[Born]) -> None:
        reason = self._refused.get(number)
        if reason is not None and not forked.done():
            name = self._services[number].name
            forked.set_exception(ProcessDiedError(f"{name} cannot be imported: {reason}"))

    def kill(self, pid: int) -> None:
        """The fork server does it: only it knows that the number is still the child's."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(b"".join(frame({"do": "kill", "pid": pid})))

    # -- the server --------------------------------------------------------------------------

    def _started(self) -> socket.socket:
        if self._control is not None:
            return self._control
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        command = python_command("lucius.platform.isolation", str(theirs.fileno()))
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=2,
                env=environment(os.environ),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._control = ours
        self._services, self._refused = {}, {}
        self._listening = asyncio.create_task(self._listen(ours))
        return ours

    async def _listen(self, control: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=control.dup())
        try:
            while True:
                header, _ = await read_frame(reader, REPORT_BYTES)
                self._heard(header)
        except (asyncio.IncompleteReadError, OSError, FrameError) as error:
            log.error("the process that forks children has ended: %r", error)
            self._ended()
        finally:
            writer.close()

    def _heard(self, said: Mapping[str, Any]) -> None:
        match said["say"]:
            case "forked":
                pid, ended = said["pid"], asyncio.get_running_loop().create_future()
                self._exits[pid] = ended
                forked = self._forking.get(said["serial"])
                if forked is not None and not forked.done():
                    forked.set_result((pid, ended))
                else:
                    self.kill(pid)
            case "ended":
                self._exits.pop(said["pid"]).set_result(exit_description(said["code"]))
            case "refused":
                self._refused[said["service"]] = said["reason"]
                for forked in self._forking.values():
                    self._check_refused(said["service"], forked)

    def _ended(self) -> None:
        """Its children have ended with it. The next that is asked for starts another."""
        self._close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        for forked in self._forking.values():
            if not forked.done():
                forked.set_exception(ConnectionResetError("the fork server has ended"))
        for exit in self._exits.values():
            exit.set_result("the process that forks children has ended")
        self._exits = {}

    def _close(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None

    async def close(self) -> None:
        """The closed socket ends the server, and it ends its children."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listening = None
        self._close()
        if self._process is not None:
            process, self._process = self._process, None
            if not self._exits:
                process.kill()  # without children it need not be waited for
            try:
                await asyncio.to_thread(process.wait, END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                await asyncio.to_thread(process.wait)


def pickled(service: Service) -> bytes:
    """ServiceError: it cannot be found by its name in another process."""
    try:
        content = pickle.dumps(service)
    except Exception as error:
        raise ServiceError(_unsendable(service, f"{type(error).__name__}: {error}")) from error
    if type(service).__module__ == "__main__":
        raise ServiceError(_unsendable(service, "its class is in the script that is run"))
    return content


def _unsendable(service: Service, reason: str) -> str:
    return (
        f'the service {service.name!r} has isolation = "process", but cannot be sent to a process:'
        f" {reason}. Define it at the top of a module that can be imported, and open what it uses"
        " (files, clients, locks) in execute()"
    )


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """What every child gets of the server's. A list of what is left out would miss the next secret."""
    return {name: text for name, text in given.items() if PASSED_ON.fullmatch(name)}


def own_variables(service: Service, given: Mapping[str, str]) -> dict[str, str]:
    """Those that the service names. A service reads them when it is imported, or later."""
    return {name: given[name] for name in service.environment if name in given}


def exit_description(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it was ended by signal {-code}"


def resident(pid: int) -> int:
    """Bytes of memory in use; 0 where the machine does not say, or when it has gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE
    except (OSError, IndexError, ValueError):
        return 0


PAGE: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
