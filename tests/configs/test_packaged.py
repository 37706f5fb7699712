"""The protocols that come with LUCIUS, and what a catalog takes from its files."""

from datetime import timedelta
from pathlib import Path

from lucius.adapters.configs.files import FileConfig
from lucius.core.plan import Mode, RetryPolicy
from lucius.ports.config import TenantConfig

STEP = """
step_types:
  SCAN:
    service: scanner
    max_attempts: 5
    ack_timeout_seconds: 0.5
    lease_seconds: 60
    publish_backoff_seconds: [1]
    ack_backoff_seconds: [2, 3]
    execution_backoff_seconds: [0, 4.5]
"""


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


def seconds(*values: float) -> tuple[timedelta, ...]:
    return tuple(timedelta(seconds=value) for value in values)


def test_packaged_defaults_are_safe_mode_with_burst_for_all() -> None:
    catalog = FileConfig().catalog()
    assert catalog.default_mode is Mode.DEFAULT
    assert catalog.burst_allowed
    assert catalog.tenants == {}
    assert catalog.version


def test_a_step_type_overrides_timeouts_and_retries_and_a_step_overrides_its_type(
    tmp_path: Path,
) -> None:
    protocols = """
protocols:
  - {request_type: SCAN, protocol_id: scan, steps: [SCAN]}
  - request_type: LONG
    protocol_id: long
    steps: [{type: SCAN, lease_seconds: 7200}]
"""
    found = FileConfig(written(tmp_path, a=STEP, b=protocols)).catalog().protocols
    expected = RetryPolicy(
        max_attempts=5,
        ack_timeout=timedelta(milliseconds=500),
        lease=timedelta(minutes=1),
        publish_backoff=seconds(1),
        ack_backoff=seconds(2, 3),
        execution_backoff=seconds(0, 4.5),
    )
    assert found["SCAN"].steps[0].policy == expected
    assert found["LONG"].steps[0].policy.lease == timedelta(hours=2)
    assert found["LONG"].steps[0].policy.max_attempts == 5


def test_what_files_leave_open_comes_from_the_given_policy() -> None:
    policy = RetryPolicy(max_attempts=7, lease=timedelta(seconds=5))
    steps = FileConfig(policy=policy).catalog().protocols["OCR"].steps
    assert steps[0].policy == policy


def test_steps_of_one_stage_run_together_and_the_next_follows(tmp_path: Path) -> None:
    text = """
protocols:
  - request_type: WIDE
    protocol_id: wide
    steps:
      - SCAN
      - {type: SCAN, id: left, stage: 5}
      - {type: SCAN, id: right, stage: 5}
      - {type: SCAN, id: last}
"""
    steps = FileConfig(written(tmp_path, a=STEP, b=text)).catalog().protocols["WIDE"].steps
    assert [(step.step_id, step.stage) for step in steps] == [
        ("scan", 1),
        ("left", 5),
        ("right", 5),
        ("last", 6),
    ]


def test_tenants_have_their_own_mode_permission_and_limit(tmp_path: Path) -> None:
    text = """
defaults: {mode: BURST}
protocols: [{request_type: S, protocol_id: s, steps: [SCAN]}]
tenants:
  acme: {mode: SAFE, burst_allowed: false, max_inflight: 3}
  "2024-01-01": {}
"""
    catalog = FileConfig(written(tmp_path, a=STEP, b=text)).catalog()
    assert catalog.default_mode is Mode.BURST
    assert catalog.tenants == {
        "acme": TenantConfig(Mode.DEFAULT, burst_allowed=False, max_inflight=3),
        "2024-01-01": TenantConfig(),
    }
