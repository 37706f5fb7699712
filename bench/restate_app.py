"""The service of the Restate peer: a workflow of three durable steps with trivial work.

Hypercorn runs it with the Python of the peer's own folder, which has `restate-sdk`; nothing here imports it.
"""

from typing import Any

import restate

STEPS = ("OCR", "EMBEDDING", "SIS")
pipeline = restate.Workflow("pipeline")


@pipeline.main()  # type: ignore[untyped-decorator]
async def run(ctx: Any, command: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for step in STEPS:
        result = await ctx.run_typed(step, _executed, step=step, job=command["job"])
    return result


async def _executed(step: str, job: str) -> dict[str, Any]:
    return {"step": step, "job": job}


app = restate.app(services=[pipeline])
