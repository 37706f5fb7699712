"""Every cause that `lucius why` can name: what it means, what happens by itself, and what helps.

The reference page is made from this. The rules that find them are in `operations/why.py`.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Severity(IntEnum):
    """How bad it is. Above `WAITS`, somebody should look."""

    FINE = 0
    """Nothing is wrong."""
    WAITS = 1
    """It goes on by itself."""
    PROBLEM = 2
    """Some jobs do not go on until someone acts, or fail."""
    OUTAGE = 3
    """Nothing goes on."""


@dataclass(frozen=True, slots=True)
class Cause:
    code: str
    severity: Severity
    title: str
    meaning: str
    by_itself: str
    helps: str


_ALL: Final = (
    # -- what does not answer ----------------------------------------------------------------
    Cause(
        "LEDGER_AWAY",
        Severity.OUTAGE,
        "The ledger does not answer",
        "Jobs can be neither read nor moved. Nothing that was acknowledged is lost.",
        "Everything goes on when the ledger answers again; no attempt is used up meanwhile.",
        "Look at the disk or the storage service; `/readyz` says what it answers.",
    ),
    Cause(
        "ENGINE_DOWN",
        Severity.OUTAGE,
        "A part of LUCIUS has ended and is started again",
        "A background task ended by an error. Until it runs again, what it does for all jobs waits.",
        "It is started again every second.",
        "Read the log of the process, which has the error, and report it.",
    ),
    Cause(
        "BUS_AWAY",
        Severity.OUTAGE,
        "The broker does not answer",
        "Directives cannot be published, or replies cannot be read. They wait where they are.",
        "Everything goes on when the broker answers again; no attempt is used up meanwhile.",
        "Look at the broker; `lucius outbox retry` publishes at once what waits, when it is back.",
    ),
    Cause(
        "CLOCK_OFF",
        Severity.OUTAGE,
        "The clock of this machine is wrong",
        "It is more than two seconds away from that of the storage service, or behind what is stored.",
        "Where the storage has a clock, the process goes by that one and is not ready. Else jobs"
        " that are stored as later than now wait until the clock has caught up.",
        "Set the clock (NTP), and restart the process.",
    ),
    Cause(
        "LANE_UNOWNED",
        Severity.OUTAGE,
        "No process owns the lane of these jobs",
        "Every lane is released, published and read by the process that leases it, and none does.",
        "The next reconciler that starts, or that notices, takes the lane within a lease; for jobs on"
        " Temporal, the next invoker.",
        "Start `lucius reconciler` (on Temporal `lucius invoker`), or see why it ended.",
    ),
    Cause(
        "NOT_TICKED",
        Severity.OUTAGE,
        "Jobs are due and nobody moves them",
        "What is due is looked for every few seconds. These jobs were due long ago.",
        "The next look moves them, if the process is able to.",
        "Read the log of the process that owns the lane; restart it if it hangs.",
    ),
    # -- services ----------------------------------------------------------------------------
    Cause(
        "SERVICES_DOWN",
        Severity.PROBLEM,
        "The services of this server do not run",
        "The process of the services of `lucius up` has died. The steps that it was at are done again.",
        "Another one is started, up to ten seconds later where several have died in a row.",
        "The evidence says how it ended, and the log what it said. Give a service that crashes"
        ' `isolation = "process"`.',
    ),
    Cause(
        "NO_WORKER_EVER",
        Severity.PROBLEM,
        "No worker of this service was ever seen",
        "Work waits for a service, and nobody has pulled, acknowledged or answered anything of it.",
        "Attempts end after the ACK timeout and are repeated, until they are used up.",
        "Start a worker of the service, under exactly this name.",
    ),
    Cause(
        "WORKERS_SILENT",
        Severity.PROBLEM,
        "The workers of this service were there and are silent",
        "Work waits, no worker has spoken since it was sent, and either nothing of the service is at work, or"
        " those that are at work have free slots and take nothing. Of a job that has ended: nobody took it.",
        "Attempts end after the ACK timeout and are repeated, until they are used up.",
        "See why the workers ended or hang, and start them again. Redrive what has failed meanwhile.",
    ),
    Cause(
        "WORKERS_REFUSED",
        Severity.PROBLEM,
        "The workers of this service are refused",
        "Work waits, and the last pull for it was answered with an error: the key of the worker is"
        " not known, was revoked, has expired, or has not the role `service`.",
        "Attempts end after the ACK timeout and are repeated, until they are used up.",
        "`lucius keys list` shows the keys; `lucius keys create NAME --role service --all-tenants`"
        " makes another one for the worker.",
    ),
    Cause(
        "WORKERS_MISNAMED",
        Severity.PROBLEM,
        "Workers pull in a name that no protocol has",
        "Work waits for a service, nobody pulls for it, and somebody pulls for a service of nearly"
        " the same name, which is answered 404 SERVICE_NOT_FOUND.",
        "Attempts end after the ACK timeout and are repeated, until they are used up.",
        "Correct the name: in the worker, or as `service` of the step type in the protocol file.",
    ),
    Cause(
        "BAD_TOKEN",
        Severity.PROBLEM,
        "The replies of this service are refused",
        "A worker answers, and its replies are set aside: their callback token is missing where"
        " LUCIUS_REQUIRE_REPLY_TOKEN is true, or is not the one of the directive.",
        "Attempts end after the ACK timeout and are repeated, until they are used up.",
        "Let the worker send `callback_token` back as it stands in the directive, or set"
        " LUCIUS_REQUIRE_REPLY_TOKEN=false where the broker's own rights are enough.",
    ),
    Cause(
        "NOT_SUBSCRIBED",
        Severity.PROBLEM,
        "Nobody is subscribed to these directives",
        "The broker has no subscription that takes directives of this step type, so no worker can get them.",
        "The ACK timeout of the attempt runs; the step is tried again until its attempts are used up.",
        "See whether the protocol names the step type and the service that you mean. On Service Bus, where"
        " subscriptions are made by hand, run `lucius bus provision`.",
    ),
    Cause(
        "SERVICE_FAILS_ALIKE",
        Severity.PROBLEM,
        "The service fails every job",
        "The last three jobs of this service or more failed the same way, or the last five in different ways,"
        " and none succeeded in between. It is not the fault of this job. Of a job that has ended, it is also"
        " said when the service works again.",
        "Failed attempts are repeated after their backoff, until they are used up.",
        "Pause the service, mend it, resume it, and redrive the group of failures.",
    ),
    Cause(
        "TENANT_FAILS_ALIKE",
        Severity.PROBLEM,
        "Every job of one tenant fails in a service",
        "The last three jobs of the service or more failed the same way, or the last five in different ways,"
        " none succeeded in between, and all of them are of one tenant. So its documents or payloads may be"
        " the fault, and not the service. Of a job that has ended, it is also said when the service works"
        " again.",
        "What may be repeated is, after its backoff. A final failure is not repeated.",
        "Look at the jobs and their error; correct the documents or the payload, and redrive the group.",
    ),
    Cause(
        "SERVICE_DEGRADED",
        Severity.PROBLEM,
        "Many attempts of a service fail and are repeated",
        "At least a fifth of the attempts of the last ten minutes, and at least five, failed with one error"
        " code and are tried again. Jobs succeed, later than they would, and some may use up their attempts.",
        "Each attempt is repeated after its backoff, until the attempts are used up.",
        "See what the error code says of what the service calls: a quota, a timeout, a model that is busy.",
    ),
    Cause(
        "SERVICE_PAUSED",
        Severity.PROBLEM,
        "The service is paused",
        "Someone holds the service back. Nothing is released to it, and none of its leases runs out.",
        "Nothing, until it is resumed.",
        "`lucius service resume NAME`, when what it needs is well again.",
    ),
    Cause(
        "PROTOCOL_GONE",
        Severity.PROBLEM,
        "No protocol names this service any more",
        "The job keeps the steps that it was accepted with. But its protocol was taken away or changed, and"
        " nothing subscribes for a service that no protocol names.",
        "The ACK timeout of the attempt runs, until the attempts are used up.",
        "Put the protocol back until these jobs have ended, or cancel them.",
    ),
    Cause(
        "HELD_BY_LIMIT",
        Severity.PROBLEM,
        "The directives of this tenant are held back",
        "A directive of this tenant was not acknowledged while others were. So one at a time goes out for the"
        " tenant, until one is acknowledged.",
        "The next one goes out when the one that is out is acknowledged, or its ACK timeout is over.",
        "See whether workers serve this tenant: those whose key is bound to other tenants do not.",
    ),
    Cause(
        "TENANT_AT_LIMIT",
        Severity.PROBLEM,
        "Requests of a tenant are refused",
        "As many jobs of the tenant are live as it may have, and requests of the last ten minutes"
        " were answered 429 TENANT_SATURATED.",
        "Requests are accepted again as its jobs end.",
        "See what holds its jobs up. If nothing does, raise LUCIUS_MAX_INFLIGHT_PER_TENANT, or `max_inflight`"
        " of the tenant in the protocols.",
    ),
    Cause(
        "WEBHOOK_FAILS",
        Severity.PROBLEM,
        "Webhooks are not delivered",
        "The client is not told how its job ended: its receiver does not answer, or answers with an error.",
        "A delivery is tried twelve times within some seven hours, and then given up.",
        "`lucius webhooks` lists them with the error; `lucius webhooks resend JOB` tries again at once, also"
        " what was given up.",
    ),
    # -- one job -----------------------------------------------------------------------------
    Cause(
        "JOB_FAILS_ALONE",
        Severity.PROBLEM,
        "This job alone fails",
        "Its step failed, and the service does not fail every job so. The error, with the place in the"
        " service's code where the kit reported one, is in the evidence.",
        "Nothing: the job has ended, and is in the dead-letter view until it is redriven or dismissed.",
        "Correct the input or the payload and redrive the job: `lucius job redrive JOB --payload ...`.",
    ),
    Cause(
        "OUTPUT_NOT_WRITABLE",
        Severity.PROBLEM,
        "The output of the job cannot be written",
        "The place that its `output_ref` names cannot be written: no directory, no rights, a"
        " read-only disk, or not below LUCIUS_OUTPUT_ROOTS. No retry would change that.",
        "Nothing: the job has ended, and is in the dead-letter view until it is redriven or dismissed.",
        "Make the place writable, or redrive the job with another one: `lucius job redrive JOB"
        " --output REF`.",
    ),
    Cause(
        "DISK_FULL",
        Severity.PROBLEM,
        "The disk of the output is full",
        "There is no room left where the step writes.",
        "The attempt is repeated after its backoff, until its attempts are used up.",
        "Make room, then `lucius job retry JOB`; or redrive the failed job with another place:"
        " `lucius job redrive JOB --output REF`.",
    ),
    Cause(
        "ENDED_BY_SLA",
        Severity.PROBLEM,
        "The job took longer than it may",
        "It went beyond its SLA (or its pause did), and the protocol says that it fails then.",
        "Nothing more: the job has ended.",
        "`lucius job redrive JOB` runs it again from the step that was under way.",
    ),
    Cause(
        "PUBLISH_REFUSED",
        Severity.PROBLEM,
        "The broker refused the directive",
        "The broker refuses the content of this message: its size, its id or its properties. No other job is"
        " concerned. It is tried again, and uses up an attempt each time.",
        "It is published again when the backoff is over.",
        "The evidence says what the broker refused. Correct that in the request or raise the broker's limit;"
        " `lucius outbox retry` publishes at once.",
    ),
    Cause(
        "WORKER_QUIET",
        Severity.PROBLEM,
        "Its worker has been quiet for too long",
        "A worker took the step and has said nothing since: for half of its lease, for three times as long as"
        " steps of the service usually take, or for a minute although it has free slots and used to"
        " pull. It may be gone, hang, or be at a large document.",
        "When the lease is over, the attempt ends and the step is tried again.",
        "Look at the worker. If it is gone, `lucius worker drop WORKER` takes its leases back: its steps are"
        " tried again at once. A long step should send heartbeats.",
    ),
    Cause(
        "JOB_PAUSED",
        Severity.WAITS,
        "The job is paused",
        "Someone paused it. Nothing of it starts.",
        "Nothing, until it is resumed or its pause is beyond its SLA.",
        "`lucius job resume JOB`.",
    ),
    Cause(
        "JOB_PAUSING",
        Severity.WAITS,
        "The job pauses when its step has ended",
        "Someone paused it while a step was under way. That step may finish; no other starts.",
        "It is paused when the step has ended.",
        "`lucius job resume JOB` takes the pause back.",
    ),
    Cause(
        "JOB_CANCELLING",
        Severity.WAITS,
        "The job is being cancelled",
        "Someone cancelled it while a step was under way. The job ends with that step, or with its lease.",
        "It is cancelled when the step has ended.",
        "`lucius job cancel JOB --immediate` ends it now.",
    ),
    Cause(
        "WAITS_FOR_RETRY",
        Severity.WAITS,
        "A step failed and is tried again",
        "An attempt failed in a way that may pass, and the next one waits for its backoff.",
        "The next attempt begins when the backoff is over.",
        "`lucius job retry JOB` ends the backoff now.",
    ),
    Cause(
        "BUSY",
        Severity.WAITS,
        "The service is busy",
        "Workers are at work, and this job waits for its turn. Tenants take turns.",
        "It goes out when those before it have.",
        "Start more workers of the service if this takes too long.",
    ),
    Cause(
        "WAITS_FOR_STAGE",
        Severity.WAITS,
        "Other steps of the same stage are not done",
        "Steps of one stage run together, and the next stage waits for all of them. Some are done.",
        "The next stage begins when the last of them has succeeded.",
        "`lucius job watch JOB` follows them.",
    ),
    Cause(
        "AWAITS_ACK",
        Severity.FINE,
        "It was just sent to its service",
        "The directive went out a moment ago, and a worker is about to take it.",
        "A worker acknowledges it; else the attempt ends after the ACK timeout.",
        "`lucius job watch JOB` follows it.",
    ),
    Cause(
        "AT_WORK",
        Severity.FINE,
        "Its worker is at work",
        "A worker has it and was heard of lately.",
        "The worker answers, or extends its lease with a heartbeat.",
        "`lucius job watch JOB` follows it.",
    ),
    Cause(
        "SUCCEEDED",
        Severity.FINE,
        "The job has succeeded",
        "All of its steps are done.",
        "Nothing more.",
        "`lucius job show JOB` names the output.",
    ),
    Cause(
        "CANCELLED",
        Severity.FINE,
        "The job was cancelled",
        "Someone cancelled it.",
        "Nothing more.",
        "`lucius job redrive JOB` runs it again from the step that was under way.",
    ),
    Cause(
        "REDRIVEN",
        Severity.FINE,
        "Another job took over from this one",
        "It failed or was cancelled, and was redriven.",
        "Nothing more: look at the job that took over.",
        "`lucius why NEW`, with the id of the job that took over.",
    ),
    # -- the system --------------------------------------------------------------------------
    Cause(
        "JOBS_FAILED",
        Severity.PROBLEM,
        "Failed jobs wait for a decision",
        "They are in the dead-letter view, and nobody has redriven or dismissed them.",
        "Nothing.",
        "`lucius failures` groups them by what failed. `lucius redrive --group GROUP` runs a group again,"
        " `lucius dlq dismiss JOB` takes a job out of the view.",
    ),
    Cause(
        "CONFIGURATION_INVALID",
        Severity.PROBLEM,
        "The newest configuration is not in force",
        "A change of the protocols is not valid or cannot be read, so the one before it stays in force.",
        "The next valid change comes into force.",
        "Correct what the evidence names: file, line and fault. `lucius protocols check FILE` tries it.",
    ),
    Cause(
        "JOBS_UNREADABLE",
        Severity.PROBLEM,
        "Stored jobs cannot be read",
        "What is stored of some jobs is damaged. They do not move; all others go on.",
        "Nothing.",
        "`lucius verify` names them; restore a backup that has them.",
    ),
    Cause(
        "OUTPUT_NOT_RESTORED",
        Severity.PROBLEM,
        "A lost output cannot be written again",
        "A loss of power took an output that a job had already reported. Its bytes are kept, but its place"
        " cannot be written: a directory stands there, its folder is gone, or the file system refuses.",
        "Each start of LUCIUS tries it again. All other jobs go on.",
        "Clear the place that the evidence names (`lucius verify` names all of them) and restart LUCIUS. A"
        " later job that writes to the same place, or the pruning of the job, ends it too.",
    ),
    Cause(
        "LOOP_BLOCKED",
        Severity.PROBLEM,
        "Something held the event loop up",
        "A service computed without letting others run, so the steps beside it were late.",
        "It happens again whenever that service does so.",
        'Give the service `isolation = "process"`, or a plain `def execute`.',
    ),
    Cause(
        "TASK_FAILS",
        Severity.PROBLEM,
        "A background task ends by an error",
        "The warning names it: redrive plans, retention, counts of failures. Jobs run as before.",
        "It is started again every second.",
        "Read the log of the process, which has the error, and report it.",
    ),
)

CAUSES: Final = {cause.code: cause for cause in _ALL}
