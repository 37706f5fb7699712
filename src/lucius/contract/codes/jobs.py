"""Codes of orders to jobs, and of questions about them."""

from typing import Final

from lucius.contract.codes.kinds import ProblemCode

JOBS: Final = (
    ProblemCode(
        "JOB_NOT_FOUND",
        404,
        "There is no such job",
        "The id names no job, or none that the caller may see: the two are not told apart.",
        "Check the id and the caller's tenants.",
    ),
    ProblemCode(
        "STEP_NOT_FOUND",
        404,
        "The job has no such step",
        "The id names no step of this job.",
        "`GET /v1/jobs/{jobId}/steps` lists its steps.",
    ),
    ProblemCode(
        "SERVICE_NOT_FOUND",
        404,
        "There is no such service",
        "No protocol that is loaded gives a step to a service of this name, and none such was ever seen.",
        "`GET /v1/services` and `lucius services` name the services.",
    ),
    ProblemCode(
        "TENANT_WITHOUT_POOL",
        403,
        "This bus cannot serve a worker that is bound to tenants",
        "The key of the worker names tenants. The bus of this server cannot pick directives by tenant, so"
        " the worker would take those of other tenants from the workers that may have them.",
        "Give each of its tenants a pool for the service, `tenants.TENANT.pools.SERVICE` in the protocols,"
        " that no other tenant has, and run `lucius bus provision`. Or give the worker a key with the role"
        " `service` and without tenants.",
    ),
    ProblemCode(
        "JOB_TERMINAL",
        409,
        "The job has ended",
        "A terminal state never changes, so this job can no longer be cancelled, paused, resumed or retried.",
        "Nothing; a job that failed can be redriven.",
    ),
    ProblemCode(
        "GROUP_NOT_FOUND",
        404,
        "There is no such group of failures",
        "No failure that the caller may see has this fingerprint, or it was forgotten: 500 groups"
        " are kept.",
        "`GET /v1/failures` and `lucius failures` list the groups.",
    ),
    ProblemCode(
        "PLAN_NOT_FOUND",
        404,
        "There is no such redrive plan",
        "No plan of this id is known, or it concerns tenants that the caller may not act for.",
        "`GET /v1/redrives` and `lucius redrives` list the plans.",
    ),
    ProblemCode(
        "NOTHING_TO_REDRIVE",
        409,
        "No job matches the plan",
        "No job in the dead-letter view matches the filter of the plan, so nothing was started.",
        "Look at `lucius dlq` and `lucius failures`, and correct the filter.",
    ),
    ProblemCode(
        "PLAN_UNDER_WAY",
        409,
        "Such a plan runs already",
        "A redrive plan with the same filter runs, and a second one would go at twice its pace."
        " Nothing was started.",
        "Watch the plan that runs with `lucius redrives PLAN`; end it with `--stop` to start it with"
        " other numbers.",
    ),
    ProblemCode(
        "TOO_MANY_PLANS",
        409,
        "Too many redrive plans run",
        "Twenty redrive plans run already, in all tenants together; or three that callers bound to the"
        " tenant have started; or fifteen of such callers together. Nothing was started.",
        "Wait for one to end, or end one with `lucius redrives PLAN --stop`.",
    ),
    ProblemCode(
        "FILTER_TOO_WIDE",
        422,
        "The plan would redrive everything",
        "The filter of a redrive plan must name a group, code, step, service, request type or tenants.",
        "Name what should be redriven. To redrive all failed jobs, name the tenants, or use"
        " `lucius jobs redrive`, which counts and asks first.",
    ),
    ProblemCode(
        "JOB_PAUSED",
        409,
        "The job is paused",
        "A paused job tries nothing again until it is resumed.",
        "`lucius job resume JOB`: it goes on at once, without waiting for an old backoff.",
    ),
    ProblemCode(
        "JOB_CANCELLING",
        409,
        "The job is being cancelled",
        "Cancel beats pause: a job that is being cancelled can be neither paused nor resumed nor retried.",
        "Wait until it is CANCELLED, then redrive it if it should run after all.",
    ),
    ProblemCode(
        "NOT_REDRIVABLE",
        409,
        "The job cannot be redriven",
        "Only a job that ended FAILED_FINAL or CANCELLED can be redriven.",
        "Wait until the job has ended.",
    ),
    ProblemCode(
        "ALREADY_REDRIVEN",
        409,
        "The job was redriven with another payload",
        "A job is redriven once. It was, with another payload than this one; `detail` names the new"
        " job. Nothing was created.",
        "Follow the new job. If it fails too, redrive that one, with the payload that is wanted.",
    ),
    ProblemCode(
        "NOT_IN_DLQ",
        409,
        "The job is not in the dead-letter view",
        "Only a job that ended FAILED_FINAL can be dismissed.",
        "Nothing.",
    ),
    ProblemCode(
        "CONFLICT",
        409,
        "The request does not fit the state of the job",
        "The job is in a state that does not take this request. Nothing was changed.",
        "Read the job and decide again.",
    ),
)
