"""A service in a process of its own whose steps end only when their job is cancelled."""

from lucius.platform import Task, service


@service("alpha", "ALPHA")
async def alpha(task: Task) -> None:
    await task.until_cancelled()
    task.check_cancelled()
