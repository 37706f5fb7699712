"""The composition root: builds what a process needs from its settings, and runs it."""

from lucius.bootstrap.adapters.access import key_file, key_store
from lucius.bootstrap.adapters.ledgers import ledger_path, open_ledger
from lucius.bootstrap.adapters.services import named_service, packaged_names, packaged_services
from lucius.bootstrap.adapters.unsupported import LibrariesMissingError
from lucius.bootstrap.adapters.workspaces import open_workspace
from lucius.bootstrap.azure_stack import serve_azure
from lucius.bootstrap.broker import BrokerMissingError, local_nats
from lucius.bootstrap.building import build
from lucius.bootstrap.provisioning import provision_bus
from lucius.bootstrap.roles import (
    NotSharedError,
    check_invoker_address,
    check_shared,
    check_temporal,
    invoke,
    reconcile,
    work,
)
from lucius.bootstrap.runtime import Runtime
from lucius.bootstrap.secrets import webhook_secret
from lucius.bootstrap.serve import check_address, serve
from lucius.bootstrap.services import check_services
from lucius.bootstrap.standalone import run_service
from lucius.bootstrap.stored_settings import settings_with_stored
from lucius.bootstrap.telemetry import observed
from lucius.bootstrap.upkeep import prunable, prune, restore_ledger, verify, verify_against_temporal

__all__ = [
    "BrokerMissingError",
    "LibrariesMissingError",
    "NotSharedError",
    "Runtime",
    "build",
    "check_address",
    "check_invoker_address",
    "check_services",
    "check_shared",
    "check_temporal",
    "invoke",
    "key_file",
    "key_store",
    "ledger_path",
    "local_nats",
    "named_service",
    "observed",
    "open_ledger",
    "open_workspace",
    "packaged_names",
    "packaged_services",
    "provision_bus",
    "prunable",
    "prune",
    "reconcile",
    "restore_ledger",
    "run_service",
    "serve",
    "serve_azure",
    "settings_with_stored",
    "verify",
    "verify_against_temporal",
    "webhook_secret",
    "work",
]
