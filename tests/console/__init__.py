"""The console, in a real Chromium and without one."""
