"""Whether a subscription takes a message, for buses whose broker does not decide it."""

from collections.abc import Mapping

from lucius.ports.bus import ABSENT, Property

Filters = tuple[tuple[str, frozenset[Property]], ...]


def compiled(filters: Mapping[str, tuple[Property, ...]]) -> Filters:
    return tuple((name, frozenset(values)) for name, values in filters.items())


def accepts(filters: Filters, properties: Mapping[str, Property]) -> bool:
    for name, accepted in filters:  # noqa: SIM110 - without a generator: it runs for every message
        if properties.get(name, ABSENT) not in accepted:
            return False
    return True
