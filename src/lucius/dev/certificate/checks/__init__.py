"""The checks, a file for each part of the contract, in the order of the report."""

from lucius.dev.certificate.checks import (  # noqa: I001
    pickup,
    replies,
    results,
    effects,
    leases,
    failures,
    process,
)
from lucius.dev.certificate.trial import CHECKS, Check

GROUPS = {
    module.__name__.rpartition(".")[2]: (module.__doc__ or "").strip()
    for module in (pickup, replies, results, effects, leases, failures, process)
}

__all__ = ["CHECKS", "GROUPS", "Check"]
