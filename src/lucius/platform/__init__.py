"""The kit for platform services: write `execute()`, and the rest of the contract is kept for you."""

from lucius.platform.commit import CommitRecord, Commits
from lucius.platform.errors import (
    DependencyUnavailableError,
    FatalError,
    InvalidPayloadError,
    ObjectMissingError,
    RetryableError,
    StepCancelledError,
    StepError,
)
from lucius.platform.messages import BusReplies, Replies, ReplyAnswer
from lucius.platform.records import MemoryRecords, Records, WorkspaceRecords
from lucius.platform.runner import Health, ServiceRunner
from lucius.platform.service import Output, Service, ServiceError, payload_schema, service
from lucius.platform.task import SyncTask, Task

__all__ = [
    "BusReplies",
    "CommitRecord",
    "Commits",
    "DependencyUnavailableError",
    "FatalError",
    "Health",
    "InvalidPayloadError",
    "MemoryRecords",
    "ObjectMissingError",
    "Output",
    "Records",
    "Replies",
    "ReplyAnswer",
    "RetryableError",
    "Service",
    "ServiceError",
    "ServiceRunner",
    "StepCancelledError",
    "StepError",
    "SyncTask",
    "Task",
    "WorkspaceRecords",
    "payload_schema",
    "service",
]
