"""Tests see the settings that they give, whatever is set or runs where they are run."""

import os

for name in [name for name in os.environ if name.startswith(("LUCIUS_", "OTEL_"))]:
    del os.environ[name]  # also for the processes that tests start
