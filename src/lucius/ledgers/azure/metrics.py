"""What the Azure ledgers count."""

from lucius.telemetry.instruments import Count, Instruments

THROTTLED = ("429", "503")


class TableInstruments(Instruments):
    def __init__(self) -> None:
        self.requests = Count(
            "lucius_table_requests_total", "Requests to Azure Table Storage", ("kind",)
        )
        self.throttled = Count(
            "lucius_table_throttled_total",
            "Requests that Azure Table Storage turned away because of too many; each is tried again",
            ("status",),
        )
        for status in THROTTLED:
            self.throttled.expect(status)
