"""The backlog as a map: one row a service, all lanes, and the tone by how much waits and runs."""

from lucius.console.now import heat_map


def test_every_lane_has_its_column_wherever_the_backlog_is() -> None:
    counts = {"held": 3, "released": 2, "in_progress": 1}
    found = heat_map(
        [{"service": "ocr", "lane": 4, **counts}, {"service": "ocr", "lane": 4, **counts}]
    )
    assert found["lanes"] == list(range(16))
    field = found["services"]["ocr"][4]
    assert (field["held"], field["all"]) == (6, 12)
    assert field["heat"] > 0


def test_without_a_backlog_there_is_no_map() -> None:
    assert heat_map([])["lanes"] == []
