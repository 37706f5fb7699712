"""Services with their workers, and what waits for them."""

from typing_extensions import TypedDict


class BacklogRowShape(TypedDict):
    """`window`: how many directives may wait at the service, whatever the lane. `oldest_seconds`: for how
    long the longest of those on this lane has waited for its ACK."""

    service: str
    mode: str
    lane: int
    held: int
    released: int
    in_progress: int
    window: int
    oldest_seconds: float


class PauseShape(TypedDict):
    """Who paused a service, when, and why if they said so. A caller bound to tenants reads only when."""

    at: str
    by: str | None
    reason: str | None


class WorkerShape(TypedDict):
    """`running`: steps at work. `slots`: how many it takes at once, if it says so, as `version`."""

    worker_id: str
    last_seen: str
    running: int
    slots: int | None
    version: str | None


class ServiceShape(TypedDict):
    """`waiting`: directives that are held or sent; `sent`: those of them that are with the bus, the oldest
    since `oldest_sent_at`. `rate_per_minute`: attempts that ended, lately, and `failure_rate` the part of
    them that failed. `refused_at`: when a reply was refused for its callback token, where none was accepted
    since. Callers bound to tenants read neither numbers nor workers: they belong to all tenants.
    """

    service: str
    step_types: list[str]
    subscribed: bool
    paused: PauseShape | None
    first_seen: str | None
    last_seen: str | None
    refused_at: str | None
    waiting: int | None
    sent: int | None
    running: int | None
    oldest_sent_at: str | None
    rate_per_minute: float | None
    failure_rate: float | None
    workers: list[WorkerShape]


class ServicesShape(TypedDict):
    services: list[ServiceShape]


class ServiceOrderShape(TypedDict):
    """`outcome` is `applied`, or `already` if that held."""

    service: str
    outcome: str


class BacklogShape(TypedDict):
    backlog: list[BacklogRowShape]


class ServiceBacklogShape(TypedDict):
    """Held, released and in progress, together."""

    backlog: int
