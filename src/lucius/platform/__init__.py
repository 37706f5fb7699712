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
from lucius.platform.payload import payload_schema
from lucius.platform.records import MemoryRecords, Records, WorkspaceRecords
from lucius.platform.replies import BusReplies, Replies, ReplyAnswer
from lucius.platform.runner import Health, ServiceRunner
from lucius.platform.service import Output, Service, ServiceError, service
from lucius.platform.sync_task import SyncTask
from lucius.platform.task import Task

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
