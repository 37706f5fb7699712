"""What the pull gateway tells the engine: who pulls, how much room there is, what was handed out."""

from lucius.engines.outbox.pump import Pump
from lucius.engines.outbox.releases import Releases
from lucius.engines.outbox.windows import Windows
from lucius.ports.bus import BoundTenants


class Pulls:
    """Workers that pull count what they have room for themselves, so the window need not guess it."""

    def __init__(self, releases: Releases, windows: Windows, pump: Pump) -> None:
        self._releases = releases
        self._windows = windows
        self._pump = pump

    def began(self, service: str, tenants: BoundTenants) -> None:
        self._windows.visits.began(service, tenants)

    def ended(self, service: str, tenants: BoundTenants, *, spare: bool) -> None:
        self._windows.visits.ended(service, tenants, spare=spare)

    async def release(self, service: str, room: int, tenants: BoundTenants) -> int:
        """Let so many more go out, beyond the window. The answer says how many are on their way."""
        return await self._pump.release_for(service, room, tenants)

    def handed_out(self, lease_id: str, seconds: float, *, spare: bool) -> None:
        """A worker has it, and has so many seconds to acknowledge it. `spare`: it had room for more."""
        key = self._windows.handed_out(lease_id, seconds, spare=spare)
        if key is not None:
            self._releases.pump(key)
