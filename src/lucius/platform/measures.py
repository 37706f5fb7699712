"""What a process of a service counts: its attempts, how long they took, and its slots."""

from lucius.telemetry.instruments import Count, Distribution, Instruments, Level


class ServiceInstruments(Instruments):
    def __init__(self) -> None:
        self.attempts = Count(
            "lucius_service_attempts_total",
            "Attempts that have ended, by the status and the code of their RESULT",
            ("service", "status", "code"),
        )
        self.seconds = Distribution(
            "lucius_service_attempt_seconds",
            "From the ACK of an attempt to its result: execute(), commit and promotion",
            ("service",),
        )
        self.slots = Level(
            "lucius_service_slots", "Slots of this process, busy and free", ("service", "state")
        )
