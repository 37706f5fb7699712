"""Tests see the settings that they give, whatever is set or runs where they are run."""

import os

ASKED_FOR = {"LUCIUS_SERVICEBUS_CONNECTION"}
"""Where it is set, the bus suite runs there instead of on the stand-in."""

for name in [name for name in os.environ if name.startswith(("LUCIUS_", "OTEL_"))]:
    if name not in ASKED_FOR:
        del os.environ[name]  # also for the processes that tests start
