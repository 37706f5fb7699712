"""Tests see the settings that they give, whatever is set or runs where they are run."""

import gc
import os
import re
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

ASKED_FOR = {"LUCIUS_SERVICEBUS_CONNECTION"}
"""Where it is set, the bus suite runs there instead of on the stand-in."""

for name in [name for name in os.environ if name.startswith(("LUCIUS_", "OTEL_"))]:
    if name not in ASKED_FOR:
        del os.environ[name]  # also for the processes that tests start

# Every process that a test starts would else compile all of the source again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell has what it runs in the background ignore Ctrl-C, and whoever ignores it hands that on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine that runs other tests meanwhile is slow: no test of ours fails by the clock.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

BROKERS = re.compile("service_?bus|nats|bus_restarts|two_deployments|broker", re.IGNORECASE)
"""Tests in which a broker's SDK may forget a connection: that of Service Bus does so when the broker ends in
the middle of its handshake. Python warns when it collects that connection."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if BROKERS.search(item.nodeid):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


def pytest_collection_finish() -> None:
    """What has been imported stays: no collection looks at it again, so that each takes milliseconds."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What a test leaves open is collected in it. Later, the warning would fail a test that did nothing.

    A fixture, and no hook of the teardown: pytest asks for such warnings before the last of those. What
    outlives the test is not looked at again: doing so took nine tenths of a run.
    """
    yield
    gc.collect()
    gc.freeze()
