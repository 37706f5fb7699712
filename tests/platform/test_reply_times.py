"""The time in a reply is the time of day in UTC, as `isoformat()` writes it."""

from datetime import UTC, datetime

import pytest

from lucius.platform import replies

NEW_YEAR = 1767225600


@pytest.mark.parametrize("fraction", [0.0, 0.000001, 0.25, 0.5, 0.999999])
@pytest.mark.parametrize("second", [0, 1, 59, 86399])
def test_a_reply_says_the_time_of_day_in_utc(
    monkeypatch: pytest.MonkeyPatch, second: int, fraction: float
) -> None:
    now = NEW_YEAR + second + fraction
    monkeypatch.setattr("lucius.platform.replies.time.time", lambda: now)
    text = replies.utc_text()
    assert abs(datetime.fromisoformat(text) - datetime.fromtimestamp(now, UTC)).microseconds <= 1
    assert len(text) == len("2026-01-01T00:00:00.000000+00:00")
    assert text.endswith("+00:00")
