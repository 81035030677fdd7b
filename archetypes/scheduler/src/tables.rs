//! Schema first: the tables with one sample item each, and the actions as data.
//!
//! The same data creates the tables, fills the README, and is what the walkthrough holds the real
//! calls against.

use cloud::tables::{Attribute, Billing, Index, Key, Projection, Scope, Table, attribute};
use walkthrough::{Action, Calls, Machine, step};

/// How many shards a minute, and the index of what is due, are spread over. A scan asks each of
/// them; every execution is written to one.
pub const SHARDS: u32 = 4;

/// JobDefinitionState.
pub const JOBS: Table = Table {
    name: "jobs",
    entity: "JobDefinitionState",
    why: "What is to be done and when; and, since a condition sees only its own item, whatever two executions of a job must agree on.",
    partition: Key::S("job_id"),
    sort: None,
    indexes: &[Index {
        name: "by_tenant",
        scope: Scope::Global,
        partition: Key::S("tenant_id"),
        sort: Some(Key::S("job_id")),
        projection: Projection::KeysOnly,
        why: "Which jobs does a tenant have? Keys only, and they never change: written once for each job",
    }],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: JOB_ATTRIBUTES,
};

const JOB_ATTRIBUTES: &[Attribute] = &[
    attribute(
        "job_id",
        "acme/job-0001",
        "identity: the tenant, and a name made by its client",
    ),
    attribute("tenant_id", "acme", "whose; what fairness is between"),
    attribute("kind", "echo", "which handler runs it"),
    attribute(
        "parameters_bytes",
        "12",
        "how much the handler is told; what, stands in `parameters`",
    ),
    attribute(
        "schedule",
        "{type: every, every_ms: 60000}",
        "once, every or cron with a time zone",
    ),
    attribute(
        "first_schedule",
        "{type: every, every_ms: 60000}",
        "what creating again is compared with",
    ),
    attribute(
        "anchor",
        "1767225600000",
        "epoch ms; intervals are counted from here",
    ),
    attribute("overlap", "ALLOW_ALL", "ALLOW_ALL, SKIP or QUEUE_ONE"),
    attribute("misfire", "RUN_LAST", "RUN_ALL, RUN_LAST or SKIP_MISSED"),
    attribute(
        "catch_up_ms",
        "86400000",
        "how far back missed fire times are made up for",
    ),
    attribute("max_attempts", "3", "then FAILED"),
    attribute(
        "lease_ms",
        "30000",
        "how long a worker has it without a heartbeat",
    ),
    attribute(
        "timeout_ms",
        "3600000",
        "how long one attempt may take in all",
    ),
    attribute("status", "ACTIVE", "ACTIVE, PAUSED, CANCELLED or FINISHED"),
    attribute(
        "schedule_version",
        "1",
        "grows with every change of plan: the fence for what has not started",
    ),
    attribute(
        "next_fire_time",
        "1767225660000",
        "epoch ms; the execution that is PENDING",
    ),
    attribute(
        "running_execution",
        "1767225660000#acme/job-0001",
        "who has the one place, unless overlap is allowed",
    ),
    attribute(
        "waiting_execution",
        "1767225720000#acme/job-0001",
        "who comes next (QUEUE_ONE)",
    ),
    attribute(
        "change_id",
        "change-0001",
        "the last change of plan, by its maker's id",
    ),
    attribute("change_kind", "paused", "which change that was"),
    attribute("created_at", "1767225600000", "epoch ms"),
];

/// ParametersState.
pub const PARAMETERS: Table = Table {
    name: "parameters",
    entity: "ParametersState",
    why: "What the handler is told. Up to 64 KB that each dispatch would pay for, were they a part of the job; read by who claims.",
    partition: Key::S("job_id"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute(
            "job_id",
            "acme/job-0001",
            "whose; none if there is nothing to tell",
        ),
        attribute("parameters", "good morning", "what"),
    ],
};

/// ExecutionState.
pub const EXECUTIONS: Table = Table {
    name: "executions",
    entity: "ExecutionState",
    why: "One row for each job and fire time. The minute alone would take every write of that minute; with the shard it is four keys.",
    partition: Key::S("bucket"),
    sort: Some(Key::S("execution_id")),
    indexes: &[
        Index {
            name: "due",
            scope: Scope::Global,
            partition: Key::S("due_shard"),
            sort: Some(Key::N("due_at")),
            projection: Projection::Include(&["tenant_id"]),
            why: "What must be looked at? `start-N` is to be dispatched, `watch-N` was dispatched and has not ended, `dead-N` has failed and waits for a redrive. Ending well removes `due_shard`: what has is not in it and costs a scan nothing",
        },
        Index {
            name: "by_job",
            scope: Scope::Global,
            partition: Key::S("job_id"),
            sort: Some(Key::N("execution_time")),
            projection: Projection::KeysOnly,
            why: "What became of a job's executions? Keys only, and they never change: no status change is written to it",
        },
    ],
    ttl: Some("expires_at"),
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute(
            "bucket",
            "2026-01-01T00:01#2",
            "the minute of execution_time, and the shard of the job",
        ),
        attribute(
            "execution_id",
            "1767225660000#acme/job-0001",
            "execution_time#job_id: a job fires at a time once",
        ),
        attribute("job_id", "acme/job-0001", "of which job"),
        attribute("tenant_id", "acme", "whose"),
        attribute(
            "execution_time",
            "1767225660000",
            "epoch ms; the future constraint",
        ),
        attribute("status", "IN_PROGRESS", "see the diagram"),
        attribute("attempt", "1", "attempts begun; the fencing token"),
        attribute(
            "attempt_limit",
            "3",
            "the last that may be begun; redrive moves it",
        ),
        attribute("schedule_version", "1", "the plan it belongs to"),
        attribute(
            "not_before",
            "1767225660000",
            "epoch ms; its time, or that of the next attempt",
        ),
        attribute(
            "due_at",
            "1767225720000",
            "epoch ms; when somebody must look at it again",
        ),
        attribute(
            "due_shard",
            "watch-2",
            "only while there is something to do: what makes the index sparse",
        ),
        attribute(
            "sent_by",
            "dispatch-0001",
            "the dispatch or redrive that enqueued it: identity of a lost answer",
        ),
        attribute("lease_owner", "worker-1", "who has it, or had it last"),
        attribute(
            "lease_expires_at",
            "1767225690000",
            "epoch ms; until when, without a heartbeat",
        ),
        attribute(
            "started_at",
            "1767225660000",
            "epoch ms; when its first attempt began",
        ),
        attribute(
            "completed_at",
            "1767225661000",
            "epoch ms; when it ended, however it did",
        ),
        attribute(
            "reason",
            "no answer",
            "why it was tried again, failed, skipped or called off",
        ),
        attribute(
            "expires_at",
            "1769817661",
            "epoch seconds; thirty days after its end",
        ),
    ],
};

/// All of them.
pub const TABLES: &[Table] = &[JOBS, EXECUTIONS, PARAMETERS];

const READ_BOTH: &str = "BatchGetItem [Get executions, Get jobs]";
const DISPATCH: &str =
    "TransactWriteItems [Update executions if, Update jobs if, Put executions if]";
const DISPATCH_LAST: &str = "TransactWriteItems [Update executions if, Update jobs if]";
const CLAIM: &str = "TransactWriteItems [Update executions if, ConditionCheck jobs if]";
const CLAIM_PLACE: &str = "TransactWriteItems [Update executions if, Update jobs if]";

/// What each action writes, in both layers, and the calls it may make. The names are the documents'.
pub const ACTIONS: &[Action] = &[
    Action {
        name: "create job",
        entities: &["JobDefinitionState", "ExecutionState"],
        abstract_layer: "create target, insert/create",
        concrete_layer: "Put on jobs if attribute_not_exists(job_id), in one transaction with its first execution and its parameters",
        calls: &[
            Calls {
                when: "later than the lookahead",
                sequence: &["TransactWriteItems [Put jobs if, Put executions if]"],
            },
            Calls {
                when: "with parameters",
                sequence: &[
                    "TransactWriteItems [Put jobs if, Put executions if, Put parameters if]",
                ],
            },
            Calls {
                when: "inside the lookahead",
                sequence: &[
                    "TransactWriteItems [Put jobs if, Put executions if]",
                    "GetQueueAttributes runnable",
                    READ_BOTH,
                    DISPATCH_LAST,
                    "SendMessage runnable",
                ],
            },
        ],
    },
    Action {
        name: "create execution",
        entities: &["ExecutionState", "JobDefinitionState"],
        abstract_layer: "create target, insert/create future-constrained run",
        concrete_layer: "Put on executions with PK=time_bucket#shard, SK=execution_time#job_id, status=PENDING, attempt=0, in the transaction that dispatches the one before it",
        calls: &[Calls {
            when: "with a next fire time",
            sequence: &[READ_BOTH, DISPATCH, "SendMessage runnable"],
        }],
    },
    Action {
        name: "scan due work",
        entities: &["ExecutionState"],
        abstract_layer: "read source on due-time index",
        concrete_layer: "Query executions/due for each shard, start-N up to now + lookahead; only what has not ended is in it",
        calls: &[Calls {
            when: "any",
            sequence: &["Query executions/due ×4"],
        }],
    },
    Action {
        name: "enqueue execution",
        entities: &[
            "RunnableExecutionState",
            "ExecutionState",
            "JobDefinitionState",
        ],
        abstract_layer: "create target, materialize claimable run",
        concrete_layer: "PENDING → ENQUEUED and the next execution in one transaction, then SendMessage with DelaySeconds ≤ 900 and {execution_id, job_id, execution_time}",
        calls: &[
            Calls {
                when: "with a next fire time",
                sequence: &[READ_BOTH, DISPATCH, "SendMessage runnable"],
            },
            Calls {
                when: "the last one",
                sequence: &[READ_BOTH, DISPATCH_LAST, "SendMessage runnable"],
            },
            Calls {
                when: "missed, the next one in its place",
                sequence: &[
                    READ_BOTH,
                    DISPATCH,
                    READ_BOTH,
                    DISPATCH,
                    "SendMessage runnable",
                ],
            },
            Calls {
                when: "called off",
                sequence: &[READ_BOTH, "UpdateItem executions if"],
            },
            Calls {
                when: "dispatched before",
                sequence: &[READ_BOTH],
            },
        ],
    },
    Action {
        name: "claim execution",
        entities: &["RunnableExecutionState"],
        abstract_layer: "state transition, claim/lease",
        concrete_layer: "ReceiveMessage; its visibility timeout is the lease as SQS sees it",
        calls: &[Calls {
            when: "any",
            sequence: &["ReceiveMessage runnable"],
        }],
    },
    Action {
        name: "mark execution in progress",
        entities: &["ExecutionState", "JobDefinitionState"],
        abstract_layer: "state transition, guarded conditional update",
        concrete_layer: "Update to IN_PROGRESS with lease and attempt + 1 if ENQUEUED or RETRYING, or IN_PROGRESS with an expired lease; if its time has come; and if the job's plan still has it",
        calls: &[
            Calls {
                when: "overlap allowed",
                sequence: &[READ_BOTH, CLAIM],
            },
            Calls {
                when: "overlap allowed, with parameters",
                sequence: &[READ_BOTH, "GetItem parameters", CLAIM],
            },
            Calls {
                when: "one at a time",
                sequence: &[READ_BOTH, CLAIM_PLACE],
            },
            Calls {
                when: "refused: too early, or held by another",
                sequence: &[READ_BOTH, CLAIM, "ChangeMessageVisibility runnable"],
            },
            Calls {
                when: "an echo",
                sequence: &[READ_BOTH, "DeleteMessage runnable"],
            },
            Calls {
                when: "another one runs: skipped",
                sequence: &[READ_BOTH, CLAIM, "DeleteMessage runnable"],
            },
            Calls {
                when: "another one runs: waits",
                sequence: &[READ_BOTH, CLAIM_PLACE, "DeleteMessage runnable"],
            },
            Calls {
                when: "called off",
                sequence: &[
                    READ_BOTH,
                    "TransactWriteItems [Update executions if]",
                    "DeleteMessage runnable",
                ],
            },
        ],
    },
    Action {
        name: "mark completed",
        entities: &["ExecutionState", "JobDefinitionState"],
        abstract_layer: "state transition, guarded conditional update",
        concrete_layer: "Update to COMPLETED if IN_PROGRESS by this owner and attempt, then DeleteMessage",
        calls: &[
            Calls {
                when: "overlap allowed",
                sequence: &["UpdateItem executions if", "DeleteMessage runnable"],
            },
            Calls {
                when: "one at a time",
                sequence: &["GetItem jobs", CLAIM_PLACE, "DeleteMessage runnable"],
            },
            Calls {
                when: "one at a time, and one waits",
                sequence: &[
                    "GetItem jobs",
                    "TransactWriteItems [Update executions if, Update jobs if, Update executions if]",
                    "GetItem executions",
                    "SendMessage runnable",
                    "DeleteMessage runnable",
                ],
            },
        ],
    },
    Action {
        name: "mark retrying/failed",
        entities: &["ExecutionState", "RunnableExecutionState"],
        abstract_layer: "state transition, guarded conditional update",
        concrete_layer: "Update to RETRYING or FAILED under the same fence; SendMessage with the backoff as DelaySeconds, or to the dead-letter queue; then DeleteMessage",
        calls: &[
            Calls {
                when: "another attempt",
                sequence: &[
                    "UpdateItem executions if",
                    "SendMessage runnable",
                    "DeleteMessage runnable",
                ],
            },
            Calls {
                when: "the last attempt",
                sequence: &[
                    "UpdateItem executions if",
                    "SendMessage dead",
                    "UpdateItem executions if",
                    "DeleteMessage runnable",
                ],
            },
        ],
    },
    Action {
        name: "heartbeat",
        entities: &["ExecutionState", "RunnableExecutionState"],
        abstract_layer: "overwrite, guarded extension of a lease (beyond the documents)",
        concrete_layer: "Update of lease_expires_at under the fence, then ChangeMessageVisibility to the same moment",
        calls: &[Calls {
            when: "any",
            sequence: &[
                "UpdateItem executions if",
                "ChangeMessageVisibility runnable",
            ],
        }],
    },
    Action {
        name: "sweep stale",
        entities: &["ExecutionState", "RunnableExecutionState"],
        abstract_layer: "read source on due-time index, repair of what got lost (beyond the documents)",
        concrete_layer: "Query executions/due, watch-N up to now; for each, move due_at if it is the one seen, then SendMessage again",
        calls: &[
            Calls {
                when: "nothing is stale",
                sequence: &["Query executions/due ×4"],
            },
            Calls {
                when: "one is stale",
                sequence: &[
                    "Query executions/due ×4",
                    "GetItem executions",
                    "UpdateItem executions if",
                    "SendMessage runnable",
                ],
            },
        ],
    },
    Action {
        name: "change job",
        entities: &["JobDefinitionState", "ExecutionState"],
        abstract_layer: "state transition, change of plan by fence (beyond the documents)",
        concrete_layer: "Update of status or schedule and schedule_version + 1 if schedule_version is the one read; with the next execution in the same transaction where there is one",
        calls: &[
            Calls {
                when: "cancel or pause",
                sequence: &["GetItem jobs", "TransactWriteItems [Update jobs if]"],
            },
            Calls {
                when: "resume or reschedule",
                sequence: &[
                    "GetItem jobs",
                    "TransactWriteItems [Update jobs if, Put executions if]",
                ],
            },
        ],
    },
    Action {
        name: "redrive",
        entities: &["ExecutionState", "RunnableExecutionState"],
        abstract_layer: "state transition, another chance for what was given up (beyond the documents)",
        concrete_layer: "ReceiveMessage on the dead-letter queue, then Query executions/due, dead-N, for what the queue has lost; FAILED → RETRYING with a higher attempt_limit if still FAILED at that attempt; SendMessage; DeleteMessage",
        calls: &[Calls {
            when: "one dead message",
            sequence: &[
                "ReceiveMessage dead",
                READ_BOTH,
                "UpdateItem executions if",
                "SendMessage runnable",
                "DeleteMessage dead",
                "ReceiveMessage dead",
                "Query executions/due ×4",
            ],
        }],
    },
    Action {
        name: "view executions",
        entities: &["ExecutionState"],
        abstract_layer: "read source (beyond the documents)",
        concrete_layer: "Query executions/by_job backwards for the keys, then BatchGetItem for the rows",
        calls: &[Calls {
            when: "any",
            sequence: &["Query executions/by_job", "BatchGetItem [Get executions *]"],
        }],
    },
];

/// The states and what moves them.
pub const MACHINES: &[Machine] = &[
    Machine {
        entity: "ExecutionState",
        states: &[
            "PENDING",
            "ENQUEUED",
            "WAITING",
            "IN_PROGRESS",
            "RETRYING",
            "COMPLETED",
            "FAILED",
            "CANCELLED",
            "SKIPPED",
        ],
        transitions: &[
            step("", "PENDING", "create execution"),
            step("PENDING", "ENQUEUED", "enqueue execution"),
            step("PENDING", "SKIPPED", "enqueue execution"),
            step("PENDING", "CANCELLED", "enqueue execution"),
            step("ENQUEUED", "IN_PROGRESS", "mark execution in progress"),
            step("ENQUEUED", "SKIPPED", "mark execution in progress"),
            step("ENQUEUED", "CANCELLED", "mark execution in progress"),
            step("ENQUEUED", "WAITING", "mark execution in progress"),
            step("WAITING", "ENQUEUED", "mark completed"),
            step("WAITING", "CANCELLED", "change job"),
            step("WAITING", "PENDING", "change job"),
            step("RETRYING", "IN_PROGRESS", "mark execution in progress"),
            step("IN_PROGRESS", "IN_PROGRESS", "mark execution in progress"),
            step("RETRYING", "CANCELLED", "mark execution in progress"),
            step("IN_PROGRESS", "CANCELLED", "mark execution in progress"),
            step("IN_PROGRESS", "FAILED", "mark execution in progress"),
            step("IN_PROGRESS", "COMPLETED", "mark completed"),
            step("IN_PROGRESS", "RETRYING", "mark retrying/failed"),
            step("IN_PROGRESS", "FAILED", "mark retrying/failed"),
            step("FAILED", "RETRYING", "redrive"),
            step("CANCELLED", "PENDING", "change job"),
            step("ENQUEUED", "PENDING", "change job"),
        ],
    },
    Machine {
        entity: "JobDefinitionState",
        states: &["ACTIVE", "PAUSED", "CANCELLED", "FINISHED"],
        transitions: &[
            step("", "ACTIVE", "create job"),
            step("ACTIVE", "FINISHED", "enqueue execution"),
            step("ACTIVE", "PAUSED", "change job"),
            step("FINISHED", "PAUSED", "change job"),
            step("PAUSED", "ACTIVE", "change job"),
            step("FINISHED", "ACTIVE", "change job"),
            step("ACTIVE", "CANCELLED", "change job"),
            step("PAUSED", "CANCELLED", "change job"),
            step("FINISHED", "CANCELLED", "change job"),
        ],
    },
];
