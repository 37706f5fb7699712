"""Tests that share something costly run in one worker, one after another."""

import pytest


@pytest.mark.xdist_group("seen")
def test_groups_are_seen(request: pytest.FixtureRequest, worker_id: str) -> None:
    """Some versions of the test tools ignore them in silence."""
    assert worker_id == "master" or request.node.nodeid.endswith("@seen")
