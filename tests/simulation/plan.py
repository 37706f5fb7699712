"""The plan of one run: how the system is set up, and a list of actions that clients and faults take.

A plan follows from its seed alone. A run is a function of the plan, so a failing one can be made shorter.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from random import Random
from typing import Any, Final

TENANTS: Final = ("acme", "birch", "coral")
SERVICES: Final = ("alpha", "beta", "gamma")
"""The first two are built on the kit. The third speaks the wire by itself, and not always well."""

REQUESTS: Final[dict[str, tuple[str, ...]]] = {
    "A": ("alpha",),
    "G": ("gamma",),
    "A->B": ("alpha", "beta"),
    "A->G->B": ("alpha", "gamma", "beta"),
    "A->B->G->A": ("alpha", "beta", "gamma", "again"),
    "FORK": ("alpha", "gamma", "beta"),
    "WIDE": ("alpha", "beta", "gamma"),
}
"""The ids of the steps of each request type: see `wiring.py`."""

KIT_DEEDS: Final = ("ok", "ok", "ok", "ok", "slow", "retry", "retry", "final", "long", "beats")
RAW_DEEDS: Final = (
    *("ok", "ok", "ok", "twice", "early", "silent", "mute", "late", "release"),
    *("beats", "retry", "final", "other_tenant", "slow"),
)
ORDERS: Final = (
    "cancel",
    "cancel_now",
    "pause",
    "pause",
    "retry_now",
    "publish_now",
    "dismiss",
    "redrive",
)
BULK: Final = ("cancel", "pause", "resume", "redrive", "dismiss")

WINDOWS: Final = (
    *("ledger.fail", "ledger.lost_answer", "ledger.hang", "ledger.slow"),
    *(
        "bus.fail",
        "bus.refuse",
        "bus.lost_answer",
        "bus.double",
        "bus.late",
        "bus.receive",
        "bus.settle",
    ),
    *("notice.lost", "workspace.fail", "webhook.fail"),
)
"""Faults that hit some of the calls in a span of time."""
EVENTS: Final = ("kill_server", "kill_services", "kill_both", "stop_server", "stop_services")
PAUSES: Final = ("freeze_server", "freeze_services", "clock")
FAULTS: Final = (*WINDOWS, *EVENTS, *PAUSES, "hold")


@dataclass(frozen=True)
class Setup:
    """`inside`: the services run in the server's own process. `api`: a process that owns no lane."""

    ledger: str = "memory"
    bus: str = "durable"
    servers: int = 1
    api: bool = False
    inside: bool = False
    slots: int = 4


@dataclass(frozen=True)
class Action:
    at: float
    kind: str
    args: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        said = " ".join(f"{k}={json.dumps(v)}" for k, v in self.args.items())
        return f"{self.at:8.3f}  {self.kind} {said}".rstrip()


@dataclass(frozen=True)
class Plan:
    seed: int
    setup: Setup
    actions: tuple[Action, ...]

    def without(self, start: int, stop: int) -> "Plan":
        return replace(self, actions=self.actions[:start] + self.actions[stop:])

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(action.kind for action in self.actions)

    @cached_property
    def calm_at(self) -> float:
        """When the last action has been taken and the last fault is over."""
        return max((a.at + float(a.args.get("seconds", 0)) for a in self.actions), default=0.0)

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}: {asdict(self.setup)}", *map(str, self.actions)])


def plan_of(seed: int) -> Plan:
    random = Random(f"plan {seed}")
    setup = _setup(random)
    actions = sorted([*_work(random), *_faults(random, setup)], key=lambda action: action.at)
    return Plan(seed, setup, tuple(actions))


def _setup(random: Random) -> Setup:
    shape = random.choice(("embedded", "apart", "durable", "durable", "two", "two", "two_and_api"))
    slots = random.choice((1, 2, 4, 8))
    if shape in ("embedded", "apart"):
        ledger = random.choice(("memory", "sqlite", "sqlite"))
        return Setup(ledger, "volatile", inside=shape == "embedded", slots=slots)
    if shape == "durable":
        return Setup(random.choice(("memory", "sqlite")), "durable", slots=slots)
    return Setup("memory", "durable", servers=2, api=shape == "two_and_api", slots=slots)


# -- the work --------------------------------------------------------------------------------


def _work(random: Random) -> Iterator[Action]:
    flood = random.random() < 0.25
    number = random.randint(8, 20) if flood else random.randint(1, 8)
    span = random.choice((0.0, 2.0, 15.0))
    plain = random.random() < 0.3
    for index in range(number):
        yield from _submission(random, index, span, flood=flood, plain=plain)
    if random.random() < 0.25:
        at = random.uniform(0, span + 20)
        yield Action(at, "bulk", {"order": random.choice(BULK), "tenant": _maybe_tenant(random)})
    if random.random() < 0.25:
        yield Action(random.uniform(0, span + 5), "configure", {"variant": random.randint(0, 2)})


def _maybe_tenant(random: Random) -> str | None:
    return random.choice((*TENANTS, None))


def _submission(
    random: Random, index: int, span: float, *, flood: bool, plain: bool
) -> Iterator[Action]:
    request = random.choice(("A", "G", "A->B") if flood else tuple(REQUESTS))
    at = round(random.uniform(0, span), 3)
    args: dict[str, Any] = {
        "no": index,
        "tenant": TENANTS[0] if flood and random.random() < 0.8 else random.choice(TENANTS),
        "request": request,
        "script": {step: _script(random, step, plain=plain) for step in REQUESTS[request]},
        "keyed": random.random() < 0.6,
        "webhook": random.random() < 0.15,
    }
    yield Action(at, "submit", args)
    if random.random() < 0.2:
        kind = random.choice(("same", "same", "other_body", "other_tenant"))
        later = at + random.choice((0.0, 0.001, 1.0, 20.0))
        yield Action(later, "repeat", {"no": index, "how": kind})
    if random.random() < 0.3:
        yield Action(at + random.uniform(0, 1), "await_end", {"no": index})
    if not plain and random.random() < 0.3:
        order = random.choice(ORDERS)
        later = at + random.choice((0.0, 0.01, random.uniform(0, 3), random.uniform(0, 60)))
        yield Action(round(later, 3), "order", {"no": index, "order": order})
        if order == "pause" and random.random() < 0.7:
            resumed = later + random.uniform(0, 15)
            yield Action(round(resumed, 3), "order", {"no": index, "order": "resume"})


def _script(random: Random, step: str, *, plain: bool) -> list[str]:
    """What the service does at the first attempt, the second, ...; the last one is repeated."""
    deeds = RAW_DEEDS if step == "gamma" else KIT_DEEDS
    if plain:
        return [random.choice(("ok", "ok", "slow"))]
    return [
        *(random.choice(deeds) for _ in range(random.randint(0, 2))),
        random.choice(("ok", "ok", deeds[-1])),
    ]


# -- faults ----------------------------------------------------------------------------------


def _faults(random: Random, setup: Setup) -> Iterator[Action]:
    """A few kinds of faults at a time, and none at all in some runs: so each is met alone, too."""
    if random.random() < 0.15:
        return
    chance = random.choice((0.08, 0.15, 0.4))
    for kind in FAULTS:
        if random.random() >= chance:
            continue
        for _ in range(random.choice((1, 1, 2))):
            at = round(random.choice((random.uniform(0, 3), random.uniform(0, 40))), 3)
            yield Action(at, kind, _details(random, kind, setup))


def _details(random: Random, kind: str, setup: Setup) -> dict[str, Any]:
    if kind in WINDOWS:
        seconds = round(random.choice((0.5, 3.0, random.uniform(1, 25))), 3)
        if kind == "webhook.fail":
            seconds = 15.0  # a webhook that fails three times is tried again after minutes
        return {"seconds": seconds, "chance": random.choice((0.1, 0.3, 0.7, 1.0))}
    which = random.randint(0, setup.servers - 1)
    if kind in EVENTS:
        back = round(random.choice((0.05, random.uniform(0, 3), random.uniform(0, 30))), 3)
        steps = random.choice((1, random.randint(1, 40), random.randint(1, 400)))
        return {"which": which, "steps": steps, "seconds": 3.0, "back": back}
    if kind == "hold":
        return {"service": random.choice(SERVICES), "seconds": round(random.uniform(1, 30), 3)}
    if kind == "clock":
        jump = random.choice((-60.0, -20.0, -2.0, 2.0, 20.0, 600.0))
        return {"jump": jump}
    seconds = round(random.choice((random.uniform(1, 5), random.uniform(5, 80))), 3)
    return {"which": which, "seconds": seconds}
