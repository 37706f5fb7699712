"""Which adapter serves which port, by the settings. No other module names them."""

import importlib
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from lucius.adapters.buses.memory import MemoryBus
from lucius.adapters.configs.files import FileConfig
from lucius.adapters.workspaces.azure_account import Account, account_of
from lucius.adapters.workspaces.by_scheme import WorkspaceByScheme
from lucius.adapters.workspaces.local import LocalWorkspace, path_of
from lucius.adapters.workspaces.memory import MemoryWorkspace
from lucius.adapters.workspaces.places import Places, PlainPaths, below, real_path
from lucius.app.secrets import made_once
from lucius.app.settings import Settings
from lucius.app.settings.kinds import show
from lucius.app.settings.loading import StoredSettings
from lucius.core.addresses import is_guarded
from lucius.core.errors import BusUnavailableError, LuciusError, WorkspaceRefusedError
from lucius.core.plan import OUTBOX
from lucius.engine.admission.ingress import IngressPolicy
from lucius.engine.ownership import EMBEDDED, LeasedLanes
from lucius.operations.retention import JobWorkspaces
from lucius.platform.records import Records, WorkspaceRecords
from lucius.ports.bus import Bus, Provisioner
from lucius.ports.config import ConfigSource
from lucius.ports.lanes import ALL_LANES, BOTH_ENGINES, NO_LANES, Lanes
from lucius.ports.ledger import Ledger, Shared
from lucius.ports.workspace import Workspace

# What this build does not have.


class UnsupportedError(LuciusError):
    """A backend or service that this build does not have."""


class LibrariesMissingError(UnsupportedError):
    """The packaged services are not installed: a server can run without them."""


def optional(module: str, setting: str, extra: str) -> ModuleType:
    """An adapter whose library comes with an extra: it is looked for only where a setting needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnsupportedError(
            f"{setting} needs the package {error.name}: pip install 'lucius[{extra}]'"
        ) from error


def key_beside(certificate: str) -> str | None:
    """The file with its private key, as `tls.key` beside `tls.crt`. None: its own file has it too."""
    beside = Path(certificate).with_suffix(".key") if certificate else None
    return str(beside) if beside is not None and beside.exists() else None


# Which bus, and who creates what it needs.

CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"


def open_bus(settings: Settings) -> Bus:
    if settings.bus_backend == "memory":
        return MemoryBus()
    if settings.bus_backend == "servicebus":
        creates = settings.bus_provision == "auto"
        connecting = service_bus()
        plan = service_bus_plan(settings)
        bus: Bus = connecting.open_service_bus(
            settings.servicebus_connection.get_secret_value(), plan, creates=creates
        )
        return bus
    return open_nats(settings)


def open_nats(settings: Settings) -> Bus:
    nats = optional("lucius.adapters.buses.nats", "LUCIUS_BUS_BACKEND=nats", "nats")
    options = {**nats_tls(settings), **nats_user(settings)}
    bus: Bus = nats.NatsBus(nats_servers(settings)[0], system=settings.system, **options)
    return bus


def nats_servers(settings: Settings) -> tuple[list[str], str]:
    """Addresses without a user, and that user. One with a password of its own stays as it is."""
    servers: list[str] = []
    users: list[str] = []
    for each in filter(None, map(str.strip, settings.nats_url.split(","))):
        before, _, rest = each.rpartition("@")
        scheme, _, user = before.rpartition("//")
        if user and ":" not in user:
            users.append(unquote(user))
            servers.append(f"{scheme}//{rest}")
        else:
            servers.append(each)
    if len(set(users)) > 1:
        raise UnsupportedError("LUCIUS_NATS_URL names several users: this process is one of them")
    return servers, users[0] if users else ""


def nats_files(settings: Settings) -> tuple[str, str]:
    """The credentials file and the certificate by which NATS servers know this process, as far as given."""
    certificates = [each for each in settings.nats_credentials if _is_certificate(each)]
    credentials = [each for each in settings.nats_credentials if each not in certificates]
    if len(certificates) > 1 or len(credentials) > 1:
        raise UnsupportedError(
            "LUCIUS_NATS_CREDENTIALS names several files of one kind: it takes a credentials file (.creds),"
            " a certificate in PEM form, or one of each"
        )
    return "".join(credentials), "".join(certificates)


def _is_certificate(path: str) -> bool:
    """A file that cannot be read is none: it is named where its credentials are asked for."""
    try:
        return CERTIFICATE in Path(path).read_bytes()
    except OSError:
        return False


def nats_user(settings: Settings) -> dict[str, Any]:
    """This process for NATS: by a credentials file, a user and a password, or a token. One of them."""
    user, password = nats_servers(settings)[1], settings.nats_password.get_secret_value()
    if credentials := nats_files(settings)[0]:
        if user or password:
            raise UnsupportedError(
                "a credentials file in LUCIUS_NATS_CREDENTIALS and LUCIUS_NATS_PASSWORD, or a user in"
                " LUCIUS_NATS_URL, say who this process is: set one of them"
            )
        reading = optional(
            "lucius.adapters.buses.nats.connection", "LUCIUS_NATS_CREDENTIALS", "nats"
        )
        try:
            found: dict[str, Any] = reading.credentials(credentials)
        except BusUnavailableError as error:
            raise UnsupportedError(str(error)) from error
        return found
    if user and not password:
        raise UnsupportedError(
            "LUCIUS_NATS_URL names a user, and LUCIUS_NATS_PASSWORD is not set: set both"
        )
    if user:
        return {"user": user, "password": password}
    return {"token": password} if password else {}


def nats_tls(settings: Settings) -> dict[str, Any]:
    """Where a certificate is named, or an address that asks for encryption."""
    certificate = nats_files(settings)[1]
    if not certificate and not settings.nats_url.startswith("tls://"):
        return {}
    try:
        context = ssl.create_default_context()
        if certificate:
            context.load_cert_chain(certificate, key_beside(certificate))
    except (OSError, ValueError) as error:
        raise UnsupportedError(
            "LUCIUS_NATS_CREDENTIALS names a certificate in PEM form with its private key in the same file or"
            f" beside it in one that ends with .key, and {certificate} cannot be used: {error}"
        ) from error
    return {"tls": context}


def service_bus() -> ModuleType:
    return optional(
        "lucius.adapters.buses.service_bus.connecting", "LUCIUS_BUS_BACKEND=servicebus", "azure"
    )


def service_bus_plan(settings: Settings) -> Any:
    return service_bus().Plan(prefix=settings.topic_prefix)


def open_provisioner(settings: Settings) -> Provisioner:
    """Who creates topics, subscriptions and rules, with rights that running processes do not need."""
    if settings.bus_backend != "servicebus":
        raise UnsupportedError(
            f"LUCIUS_BUS_BACKEND={settings.bus_backend} needs no provisioning: processes create what they"
            " need. For Service Bus, set LUCIUS_BUS_BACKEND=servicebus"
        )
    made: Provisioner = service_bus().open_administrator(
        settings.servicebus_connection.get_secret_value(), service_bus_plan(settings)
    )
    return made


# Where protocols, tenants and stored settings come from.


async def open_config(settings: Settings, stored: StoredSettings | None = None) -> ConfigSource:
    """`stored` is told what App Configuration says of the settings, at each look."""
    if settings.config_source == "files":
        return FileConfig(settings.protocol_paths(), policy=settings.retry_policy())
    opened: ConfigSource = await app_configuration().open_app_configuration(
        settings.appconfig_connection.get_secret_value(),
        settings.system,
        (stored or StoredSettings(settings)).policy,
    )
    return opened


async def stored_settings(connection: str, label: str) -> Mapping[str, str]:
    """What App Configuration says of the settings, by variable."""
    found: Mapping[str, str] = await app_configuration().read_settings(connection, label)
    return found


def app_configuration() -> ModuleType:
    return optional(
        "lucius.adapters.configs.app_configuration", "LUCIUS_APPCONFIG_CONNECTION", "azure"
    )


# Which ledger, and which of its lanes are owned here.

LANE_LEASE: Final = timedelta(seconds=15)
"""How long after its last sign of life the lanes of a process are taken over by others."""


async def open_ledger(settings: Settings, *, readonly: bool = False) -> Ledger:
    given = settings.given(settings.ledger.reads)
    ledger: Ledger = await _module(settings).open_ledger(given, readonly=readonly)
    return ledger


def identity(settings: Settings) -> str:
    """Names the ledger that processes share: whoever has the same one belongs to this installation."""
    return str(_module(settings).identity(settings.given(settings.ledger.reads)))


def _module(settings: Settings) -> ModuleType:
    kind = settings.ledger
    return optional(kind.module, f"LUCIUS_STORAGE_BACKEND={settings.storage_backend}", kind.extra)


def open_lanes(
    settings: Settings, ledger: Ledger, *, takes: bool, engine: str | None = OUTBOX
) -> Lanes:
    """Which lanes this process owns: all of an embedded ledger, a part of a shared one, or none.

    `engine`: whose jobs it moves; None: those of both.
    """
    if not isinstance(ledger, Shared):
        every = BOTH_ENGINES if engine is None else ALL_LANES
        return every if takes else NO_LANES
    if engine is None:
        raise UnsupportedError(
            f"`lucius up` runs jobs on Temporal over an embedded ledger, and"
            f" LUCIUS_STORAGE_BACKEND={settings.storage_backend} is shared: run `lucius orchestrator`,"
            " `lucius invoker` and `lucius worker`"
        )
    name = f"{socket.gethostname()}/{os.getpid()}/{uuid4().hex[:8]}"
    return LeasedLanes(
        ledger.leases(),
        name,
        clock=time.monotonic,
        term=LANE_LEASE,
        takes=takes,
        engine=engine,
    )


def ledger_path(settings: Settings) -> Path | None:
    """None: the ledger is no file of the data directory."""
    return settings.data_dir / settings.ledger.file if settings.ledger.file else None


# Where a service of its own process records what it has begun and done.


@asynccontextmanager
async def open_records(settings: Settings, workspace: Workspace) -> AsyncIterator[Records]:
    table = settings.service_records_table
    if not table:
        yield WorkspaceRecords(workspace)
        return
    tables = optional(
        "lucius.adapters.ledgers.azure.records", f"LUCIUS_SERVICE_RECORDS_TABLE={table}", "azure"
    )
    connection = settings.table_connection.get_secret_value()
    async with tables.open_records(connection, table) as records:
        yield records


# Where outputs lie, by the scheme of their references, and whose they are.

INSTALLATION_FILE: Final = "installation"
BLOB_SCHEMES: Final = ("az", "abfs", "abfss", "https")
S3_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
GCS_ENDPOINTS: Final = ("STORAGE_EMULATOR_HOST",)
"""The standard variables that name other servers than Amazon's and Google's, where ours are empty."""
MOST_OF_A_DOCUMENT: Final = 100 * 1024 * 1024
"""Bytes of a document that services read at an https address, below one in LUCIUS_INPUT_ROOTS."""
SERVED_SCHEMES: Final = ("file", "mem", "s3", "gs", *BLOB_SCHEMES)


def open_workspace(settings: Settings, *, restores: bool = True) -> Workspace:
    """The scheme of a reference chooses. `file` reaches the workspaces and the roots in the settings.

    On a running event loop. `restores`: write again what a loss of power took; another process may have.
    """
    local = LocalWorkspace(
        workspace_root(settings),
        readable=[Path(root).expanduser() for root in settings.input_roots if not is_url(root)],
        writable=[Path(root).expanduser() for root in settings.output_roots if not is_url(root)],
        protected=[settings.data_dir],
        small_as_files=settings.workspace_files == "all",
    )
    if restores:
        local.recover()
    local.settle_left()
    memory = MemoryWorkspace(jobs=settings.workspace_url)
    return WorkspaceByScheme({"file": local, "mem": memory, **objects(settings)})


def is_url(root: str) -> bool:
    return "://" in root


def scheme_of(place: str) -> str:
    return place.partition(":")[0].lower()


def objects(settings: Settings) -> dict[str, Workspace]:
    """What is not on this machine, by scheme: an account of Azure, buckets, and https addresses to read."""
    connection = settings.blob_connection.get_secret_value()
    account = account_of(connection) if connection else None
    hosts = account.hosts if account is not None else frozenset()
    readable: list[str] = []
    documents: list[str] = []
    for root in filter(is_url, settings.input_roots):
        plain = scheme_of(root) == "https" and urlsplit(root).netloc.lower() not in hosts
        (documents if plain else readable).append(root)
    writable = list(filter(is_url, settings.output_roots))
    try:
        stored = _stored(settings, account, readable, writable)
        if "https" in stored:
            stored |= dict.fromkeys((f"https://{host}" for host in hosts), stored["https"])
        return {**stored, **_documents(documents)}
    except WorkspaceRefusedError as error:
        raise UnsupportedError(
            f"LUCIUS_WORKSPACE_URL, LUCIUS_INPUT_ROOTS or LUCIUS_OUTPUT_ROOTS: {error}"
        ) from error


def _documents(roots: Sequence[str]) -> dict[str, Workspace]:
    if not roots:
        return {}
    from lucius.adapters.workspaces.https import HttpsDocuments  # few need its client

    return {"https": HttpsDocuments(roots, limit=MOST_OF_A_DOCUMENT)}


def _stored(
    settings: Settings, account: Account | None, readable: Sequence[str], writable: Sequence[str]
) -> dict[str, Workspace]:
    """What is in object stores; of buckets those kinds in which a setting names one."""
    home = settings.workspace_url
    stores = list(_stores(settings, account, {*map(scheme_of, (home, *readable, *writable))}))
    served = {scheme for each in stores for scheme in each.schemes}
    for root in (*readable, *writable):
        if scheme_of(root) not in served:
            raise UnsupportedError(
                f"LUCIUS_INPUT_ROOTS or LUCIUS_OUTPUT_ROOTS name {root}: {_helps(root)}"
            )
    if not stores:
        return {}
    adapter = optional("lucius.adapters.workspaces.objects", "an object store", "s3")
    opened = adapter.ObjectWorkspace(stores, home=home, readable=readable, writable=writable)
    return dict.fromkeys(served, opened)


def _stores(settings: Settings, account: Account | None, named: Collection[str]) -> Iterator[Any]:
    if account is not None:
        azure = optional("lucius.adapters.workspaces.azure_blob", "LUCIUS_BLOB_CONNECTION", "azure")
        yield azure.blobs(account)
    if "s3" in named:
        clear = os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true"
        given = {"LUCIUS_S3_ENDPOINT": settings.s3_endpoint}
        yield _buckets("s3").s3(_endpoint(given, S3_ENDPOINTS, clear=clear))
    if "gs" in named:
        given = {"LUCIUS_GCS_ENDPOINT": settings.gcs_endpoint}
        yield _buckets("gs").gcs(_endpoint(given, GCS_ENDPOINTS))


def _buckets(scheme: str) -> ModuleType:
    return optional("lucius.adapters.workspaces.buckets", f"a place at {scheme}://", "s3")


def _endpoint(given: dict[str, str], standard: Sequence[str], *, clear: bool = False) -> str:
    """Keys and documents do not cross a network in the clear, unless someone has said so."""
    named = given | {name: os.environ.get(name, "") for name in standard}
    name, url = next(((name, url) for name, url in named.items() if url), ("", ""))
    if url and not is_guarded(url) and not (clear and url.startswith("http:")):
        raise UnsupportedError(
            f"{name}={show(url)}: it must begin with https://, or with http:// on this machine. A store of S3"
            " in a network that is trusted may be called over http:// with AWS_ALLOW_HTTP=true"
        )
    return url.rstrip("/")


def _helps(place: str) -> str:
    if scheme_of(place) in BLOB_SCHEMES:
        return (
            "set LUCIUS_BLOB_CONNECTION to a connection string of its account, or to"
            " https://NAME.blob.core.windows.net for the identity of the process. Other https addresses are"
            " for inputs alone"
        )
    return (
        f"the services of this build read and write {', '.join(SERVED_SCHEMES)}; run them elsewhere (lucius"
        " up --no-services)"
    )


def job_workspaces(
    settings: Settings, workspace: Workspace, *, readonly: bool = False
) -> JobWorkspaces:
    """The workspaces of all jobs."""
    home = f"{settings.workspace_url.rstrip('/')}/{settings.system}/"
    return JobWorkspaces(workspace, home, "" if readonly else installation(settings))


def installation(settings: Settings) -> str:
    """Whose the workspaces and the bus are. Processes that share a ledger are one installation.

    An embedded one is named by a file in its data directory. Keys may be rotated, so they do not count.
    """
    if not settings.shared:
        return made_once(settings.data_dir / INSTALLATION_FILE).decode(errors="replace")
    return sha256(identity(settings).encode()).hexdigest()


def home_of(settings: Settings) -> str:
    """What worker ids of the services in this installation's process begin with."""
    whose = sha256(made_once(settings.data_dir / INSTALLATION_FILE)).hexdigest()[:8]
    return f"{EMBEDDED}{whose}/"


def check_workspace(settings: Settings) -> None:
    """Services that run here write where LUCIUS_WORKSPACE_URL says, or do not start."""
    scheme = scheme_of(settings.workspace_url)
    blobs = scheme in BLOB_SCHEMES and not settings.blob_connection
    if blobs or scheme not in SERVED_SCHEMES:
        url = f"LUCIUS_WORKSPACE_URL={show(settings.workspace_url)}"
        raise UnsupportedError(f"{url}: {_helps(settings.workspace_url)}")


def workspace_root(settings: Settings) -> Path:
    """Where the workspaces of the jobs lie; where they would, if they are not files."""
    if not settings.workspace_url.lower().startswith("file:"):
        return settings.data_dir.absolute() / "workspace"
    try:
        return Path(path_of(settings.workspace_url))
    except WorkspaceRefusedError as error:
        raise UnsupportedError(f"LUCIUS_WORKSPACE_URL: {error}") from error


def ingress_policy(settings: Settings, served: Collection[str] = ()) -> IngressPolicy:
    """No reference of a request leads to the secrets of this process, or to the work of others.

    `served`: services that run in this process, with these settings.
    """
    policy = settings.ingress_policy()
    kept = Places([settings.data_dir, workspace_root(settings)])
    remote = not settings.workspace_url.startswith("file:")
    home = f"{settings.workspace_url}/{settings.system}" if remote else ""
    return replace(
        policy,
        references=replace(policy.references, protects=kept.hold, home=home),
        closed=ClosedPlaces(settings).reason,
        served=frozenset(served),
    )


class ClosedPlaces:
    """Places that services with these settings can neither read nor write.

    Roots are resolved once, as services do it.
    """

    def __init__(self, settings: Settings) -> None:
        outputs = _resolved(settings.output_roots)
        self._roots = {
            "output_ref": outputs,
            "input_ref": outputs | _resolved(settings.input_roots),
        }
        self._plain = PlainPaths()

    def reason(self, name: str, uri: str) -> str | None:
        """Why a local file is out of reach; None where it might be in reach."""
        if scheme_of(uri) != "file":
            return None
        roots = self._roots[name]
        if any(self._plain.path(place, uri) is not None for place in roots.items()):
            return None
        path = path_of(uri)
        real = real_path(path)
        if any(below(real, root) for root in roots.values()):
            return None
        folder = path if path.endswith("/") else os.path.dirname(path)
        open_to = ", ".join(sorted(roots.values())) or "nothing"
        reads = name == "input_ref"
        what, root = (
            ("read", "LUCIUS_INPUT_ROOTS") if reads else ("write to", "LUCIUS_OUTPUT_ROOTS")
        )
        return f"jobs may not {what} {folder}: add it to {root} (now: {open_to})"


def _resolved(roots: Iterable[str]) -> dict[str, str]:
    """The paths of directories, by their URIs with a slash at the end."""
    real = (os.path.realpath(Path(root).expanduser()) for root in roots if not is_url(root))
    return {os.path.join(Path(path).as_uri(), ""): path for path in real}
