"""The models that the client takes and returns, each loaded from the contract when it is first used.

So a program pays for pydantic with its first answer, and one that reads plain JSON never does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lucius.contract.models.base import FaultView as FaultView
    from lucius.contract.models.base import ProblemView as ProblemView
    from lucius.contract.models.commands import Command as Command
    from lucius.contract.models.commands import RedrivenView as RedrivenView
    from lucius.contract.models.commands import SubmittedView as SubmittedView
    from lucius.contract.models.control import BulkView as BulkView
    from lucius.contract.models.control import RetriedView as RetriedView
    from lucius.contract.models.insight import FailuresView as FailuresView
    from lucius.contract.models.insight import JobWhyView as JobWhyView
    from lucius.contract.models.insight import RedrivePlansView as RedrivePlansView
    from lucius.contract.models.insight import RedrivePlanView as RedrivePlanView
    from lucius.contract.models.insight import SystemWhyView as SystemWhyView
    from lucius.contract.models.insight import WebhooksView as WebhooksView
    from lucius.contract.models.jobs import EventsView as EventsView
    from lucius.contract.models.jobs import EventView as EventView
    from lucius.contract.models.jobs import ExecutionsView as ExecutionsView
    from lucius.contract.models.jobs import ExecutionView as ExecutionView
    from lucius.contract.models.jobs import JobsView as JobsView
    from lucius.contract.models.jobs import JobView as JobView
    from lucius.contract.models.jobs import StepsView as StepsView
    from lucius.contract.models.jobs import StepView as StepView
    from lucius.contract.models.messages import DirectivesView as DirectivesView
    from lucius.contract.models.messages import RepliesView as RepliesView
    from lucius.contract.models.messages import ReplyMessage as ReplyMessage
    from lucius.contract.models.services import DroppedWorkerView as DroppedWorkerView
    from lucius.contract.models.services import ProtocolsView as ProtocolsView
    from lucius.contract.models.services import ServiceOrderView as ServiceOrderView
    from lucius.contract.models.services import ServicesView as ServicesView
    from lucius.contract.models.services import SettingsView as SettingsView
else:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__} has no attribute {name}")
        model = getattr(import_module(f"lucius.contract.models.{_HOMES[name]}"), name)
        globals()[name] = model
        return model


_HOMES: Final = {
    name: home
    for home, names in {
        "base": ("FaultView", "ProblemView"),
        "commands": ("Command", "RedrivenView", "SubmittedView"),
        "control": ("BulkView", "RetriedView"),
        "insight": (
            "FailuresView",
            "JobWhyView",
            "RedrivePlanView",
            "RedrivePlansView",
            "SystemWhyView",
            "WebhooksView",
        ),
        "jobs": (
            "EventView",
            "EventsView",
            "ExecutionView",
            "ExecutionsView",
            "JobView",
            "JobsView",
            "StepView",
            "StepsView",
        ),
        "messages": ("DirectivesView", "RepliesView", "ReplyMessage"),
        "services": (
            "DroppedWorkerView",
            "ProtocolsView",
            "ServiceOrderView",
            "ServicesView",
            "SettingsView",
        ),
    }.items()
    for name in names
}
