"""Tests see the settings that they give, whatever is set or runs where they are run."""

import os

from hypothesis import HealthCheck, settings

ASKED_FOR = {"LUCIUS_SERVICEBUS_CONNECTION"}
"""Where it is set, the bus suite runs there instead of on the stand-in."""

for name in [name for name in os.environ if name.startswith(("LUCIUS_", "OTEL_"))]:
    if name not in ASKED_FOR:
        del os.environ[name]  # also for the processes that tests start

# A machine that runs other tests meanwhile is slow: no test of ours fails by the clock.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
