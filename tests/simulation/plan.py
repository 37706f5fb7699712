"""The plan of one run: how the system is set up, and a list of actions that clients and faults take.

A plan follows from its seed alone. A run is a function of the plan, so a failing one can be made shorter.
"""

import json
from collections.abc import Iterator, Sequence
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

AIMED_WINDOWS: Final = (
    *("leases.fail", "leases.keep", "ledger.late_save", "ledger.late_read", "nudge.lost"),
)
"""Faults that hit some of the calls in a span of time, of plans that aim at something.

Leases that cannot be written, or not given back; saves that land seconds late; reads whose answers come
seconds late; nudges that are lost.
"""
AIMED: Final = 4
"""One seed in so many gives a plan that aims at a handover, a restart or at readers."""


@dataclass(frozen=True)
class Setup:
    """`inside`: the services run in the server's own process. `api`: a process that owns no lane.

    `forgetful`: the engine has no room to keep jobs in memory, so it reads each from the ledger.
    """

    ledger: str = "memory"
    bus: str = "durable"
    servers: int = 1
    api: bool = False
    inside: bool = False
    slots: int = 4
    forgetful: bool = False


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
    if seed % AIMED == 1:
        setup, given = random.choice((_handover, _handover, _lapse, _restart, _restart, _readers))(
            random
        )
    else:
        setup = _setup(random)
        given = [*_work(random), *_faults(random, setup)]
    return Plan(seed, setup, tuple(sorted(given, key=lambda action: action.at)))


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


# -- plans that aim --------------------------------------------------------------------------


def _handover(random: Random) -> tuple[Setup, list[Action]]:
    """Owners share the lanes, and somebody waits for the end of each job."""
    setup = Setup(
        servers=random.choice((2, 2, 3)), api=random.random() < 0.3, slots=random.choice((1, 4))
    )
    story = random.choice((_comings, _zombie))
    return setup, list(story(random, setup))


def _comings(random: Random, setup: Setup) -> Iterator[Action]:
    """Owners come, go and freeze past their leases. At the end they may stay away."""
    span = random.choice((10.0, 40.0, 80.0))
    yield from (*_jobs(random, random.randint(4, 10), span), *_holds(random, span))
    for which in range(1, setup.servers):
        at = random.uniform(0, span / 2)
        for _ in range(random.randint(1, 3)):
            back = random.choice((0.05, random.uniform(0, 20)))
            if random.random() < 0.25:
                yield Action(at, "freeze_server", {"which": which, "seconds": back + 12})
            else:
                yield _gone(random, at, which, back)
            at += back + random.choice((random.uniform(2, 8), random.uniform(0, 30)))
        if random.random() < 0.5:
            yield _gone(random, at, which, None)
    for kind in ("leases.fail", "leases.keep", "ledger.late_read"):
        if random.random() < 0.5:
            yield _window(random, kind, random.uniform(0, span))


def _zombie(random: Random, setup: Setup) -> Iterator[Action]:
    """An owner comes, and is given lanes while saves of the one before are on their way.

    That one may not be able to tell of what it has saved, or may die before it does.
    """
    joins = random.uniform(8, 30)
    yield from _jobs(random, random.randint(6, 14), joins, waiters=3)
    for which in range(1, setup.servers):
        yield _gone(random, 0.5, which, joins + random.uniform(0, 3))
    at = round(joins - random.uniform(1, 6), 3)
    yield Action(at, "ledger.late_save", {"seconds": 10.0, "chance": random.choice((0.7, 1.0))})
    untold = random.choice(("nobody", "nudge.lost", "dies"))
    if untold == "nudge.lost":
        yield Action(at, untold, {"seconds": 25.0, "chance": 1.0})
    elif untold == "dies":
        yield _gone(random, joins + random.uniform(2, 8), 0, random.uniform(0, 40))


def _lapse(random: Random) -> tuple[Setup, list[Action]]:
    """The only owner cannot renew its leases, and attempts end on lanes that nobody owns for a while."""
    at, seconds = round(random.uniform(6, 20), 3), round(random.uniform(16, 30), 3)
    actions = list(_jobs(random, random.randint(4, 10), at + 12, deeds=("slow", "slow", "beats")))
    actions += [
        _gone(random, 0.5, 1, None),
        Action(at, "leases.fail", {"seconds": seconds, "chance": 1.0}),
        Action(at, "nudge.lost", {"seconds": seconds, "chance": 1.0}),
    ]
    for index in range(4):
        order = {"no": index, "order": random.choice(("cancel", "cancel_now"))}
        actions.append(Action(round(at + random.uniform(8, seconds), 3), "order", order))
    return Setup(servers=2, slots=random.choice((1, 4))), actions


def _gone(random: Random, at: float, which: int, back: float | None) -> Action:
    """`back`: when it comes again. Without it, it stays away."""
    kind = random.choice(("kill_server", "stop_server"))
    args = {"which": which, "steps": random.choice((1, 100)), "seconds": 0.5, "back": back}
    return Action(round(at, 3), kind, args)


def _restart(random: Random) -> tuple[Setup, list[Action]]:
    """The one owner dies with entries held and attempts out. When it is back, the ledger fails."""
    setup = Setup(random.choice(("memory", "memory", "sqlite")), slots=random.choice((1, 4)))
    actions = [*_jobs(random, random.randint(6, 16), 3.0), *_holds(random, 3.0)]
    at = random.uniform(1, 5)
    for _ in range(random.randint(1, 2)):
        back = random.choice((0.05, random.uniform(0, 3)))
        actions.append(_gone(random, at, 0, back))
        for kind in ("ledger.fail", "ledger.late_read"):
            if random.random() < 0.9:
                actions.append(_window(random, kind, at + back))
        at += back + random.uniform(5, 20)
    return setup, actions


def _readers(random: Random) -> tuple[Setup, list[Action]]:
    """Many wait for each job at an engine that reads it from the ledger, while answers come late."""
    setup = Setup(slots=random.choice((1, 4)), forgetful=True)
    span = random.choice((2.0, 15.0))
    actions = list(_jobs(random, random.randint(3, 8), span, waiters=4))
    actions.append(_window(random, "ledger.late_read", random.uniform(0, span)))
    return setup, actions


def _jobs(
    random: Random, number: int, span: float, *, deeds: Sequence[str] = (), waiters: int = 1
) -> Iterator[Action]:
    """`deeds`: one of them is what services do at each attempt of a step. `waiters`: for each job."""
    plain = random.random() < 0.5
    for index in range(number):
        for action in _submission(random, index, span, flood=False, plain=plain):
            if deeds and action.kind == "submit":
                action.args["script"] = {
                    step: [random.choice(deeds)] for step in action.args["script"]
                }
            yield action
        for _ in range(waiters):
            yield Action(random.uniform(0, span + 10), "await_end", {"no": index})


def _holds(random: Random, span: float) -> Iterator[Action]:
    for service in SERVICES:
        if random.random() < 0.4:
            seconds = round(random.uniform(5, 40), 3)
            yield Action(random.uniform(0, span), "hold", {"service": service, "seconds": seconds})


def _window(random: Random, kind: str, at: float) -> Action:
    seconds = round(random.choice((3.0, random.uniform(3, 15), random.uniform(15, 40))), 3)
    chance = random.choice((0.3, 0.7, 1.0))
    return Action(round(at, 3), kind, {"seconds": seconds, "chance": chance})
