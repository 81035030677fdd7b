//! Schema first: the tables with one sample item each, and the actions as data.
//!
//! The same data creates the tables, fills the README, and is what the walkthrough holds the real
//! calls against.

use cloud::tables::{Attribute, Billing, Index, Key, Projection, Scope, Table, attribute};
use walkthrough::{Action, Calls, Machine, step};

/// How many keys each sparse index is spread over: every change of every payment is written to one.
pub const SHARDS: u32 = 8;

/// PaymentIntentState.
pub const PAYMENT_INTENTS: Table = Table {
    name: "payment_intents",
    entity: "PaymentIntentState",
    why: "The payment: root of the workflow, and the one item that every change of it goes through.",
    partition: Key::S("payment_intent_id"),
    sort: None,
    indexes: &[Index {
        name: "expiring",
        scope: Scope::Global,
        partition: Key::S("expiry_shard"),
        sort: Some(Key::N("expiry_due_at")),
        projection: Projection::KeysOnly,
        why: "Which authorizations must be let go? Only those that are held are in it",
    }],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: INTENT_ATTRIBUTES,
};

const INTENT_ATTRIBUTES: &[Attribute] = &[
    attribute("payment_intent_id", "pi-0001", "identity"),
    attribute("merchant_id", "shop", "whose"),
    attribute("amount", "1999", "minor units"),
    attribute(
        "currency",
        "EUR",
        "ISO 4217; says how many digits follow the point",
    ),
    attribute("capture_method", "AUTOMATIC", "AUTOMATIC or MANUAL"),
    attribute("status", "SUCCEEDED", "see the diagram"),
    attribute(
        "version",
        "3",
        "the number of its last event: what a change is guarded by",
    ),
    attribute(
        "charges",
        "1",
        "charges sent; at most three cards are tried",
    ),
    attribute(
        "open_transaction",
        "txn-0001",
        "the one movement that has not ended: no other begins meanwhile",
    ),
    attribute("authorized", "1999", "what the bank holds or held"),
    attribute("captured", "1999", "what was taken"),
    attribute("refunded", "0", "what was given back"),
    attribute("capturable", "0", "what may still be taken"),
    attribute("refundable", "1999", "what may still be given back"),
    attribute(
        "authorization",
        "txn-0001-1",
        "the processor's name for it: the attempt that made it",
    ),
    attribute(
        "authorization_expires_at",
        "1767830400000",
        "epoch ms; until when it holds",
    ),
    attribute(
        "expiry_due_at",
        "1767830400000",
        "epoch ms; when the sweeper must look at it",
    ),
    attribute(
        "expiry_shard",
        "expiry-2",
        "only while it can expire: what makes the index sparse",
    ),
    attribute("reason", "the card was declined", "why it is not charged"),
    attribute("created_at", "1767225600000", "epoch ms"),
    attribute("updated_at", "1767225600000", "epoch ms"),
];

/// TransactionState.
pub const TRANSACTIONS: Table = Table {
    name: "transactions",
    entity: "TransactionState",
    why: "One row for each movement of money: a charge, a capture, a void, a refund. Under its payment, so that they can be listed.",
    partition: Key::S("payment_intent_id"),
    sort: Some(Key::S("transaction_id")),
    indexes: &[Index {
        name: "open",
        scope: Scope::Global,
        partition: Key::S("due_shard"),
        sort: Some(Key::N("due_at")),
        projection: Projection::KeysOnly,
        why: "What must the reconciler look at? Only what has not ended is in it",
    }],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("payment_intent_id", "pi-0001", "of which payment"),
        attribute("transaction_id", "txn-0001", "identity"),
        attribute("kind", "CHARGE", "CHARGE, CAPTURE, VOID or REFUND"),
        attribute("status", "PENDING_NETWORK_RESULT", "see the diagram"),
        attribute("amount", "1999", "minor units"),
        attribute("currency", "EUR", "ISO 4217"),
        attribute("card", "card-ok", "a token, never a number"),
        attribute(
            "capture",
            "true",
            "whether a charge takes the money at once",
        ),
        attribute(
            "authorization",
            "txn-0001-1",
            "what a capture, void or refund is about",
        ),
        attribute(
            "expiry",
            "false",
            "whether a void is made because the authorization is over",
        ),
        attribute("attempt", "1", "attempts begun; with the status, the fence"),
        attribute("asked", "0", "how often the reconciler has asked in vain"),
        attribute(
            "settled_by",
            "RESPONSE",
            "who found out: RESPONSE, NOTICE, RECONCILIATION or RULES",
        ),
        attribute(
            "reason",
            "the card was declined",
            "why it was declined or failed",
        ),
        attribute(
            "due_shard",
            "open-2",
            "only while it is open: what makes the index sparse",
        ),
        attribute(
            "due_at",
            "1767225605000",
            "epoch ms; when somebody must look at it",
        ),
        attribute("created_at", "1767225600000", "epoch ms"),
        attribute("updated_at", "1767225600000", "epoch ms"),
    ],
};

/// ExternalAuthorizationAttemptState.
pub const EXTERNAL_ATTEMPTS: Table = Table {
    name: "external_attempts",
    entity: "ExternalAuthorizationAttemptState",
    why: "One row for each attempt at the processor, by the key the processor has it under: a notice names nothing else.",
    partition: Key::S("attempt_id"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute(
            "attempt_id",
            "txn-0001-1",
            "transaction and attempt: the processor's idempotency key",
        ),
        attribute("transaction_id", "txn-0001", "of which movement"),
        attribute("payment_intent_id", "pi-0001", "of which payment"),
        attribute(
            "status",
            "APPROVED",
            "SENT, UNKNOWN, APPROVED, DECLINED or CLOSED",
        ),
        attribute("sent_at", "1767225600000", "epoch ms"),
        attribute(
            "ended_at",
            "1767225600000",
            "epoch ms; when its outcome was known",
        ),
    ],
};

/// IdempotencyState.
pub const IDEMPOTENCY: Table = Table {
    name: "idempotency",
    entity: "IdempotencyState",
    why: "What a merchant's key stands for, who works on it, and the first answer, byte for byte.",
    partition: Key::S("idempotency_key"),
    sort: None,
    indexes: &[],
    ttl: Some("purge_at"),
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("idempotency_key", "4:shop#order-17", "merchant and key"),
        attribute(
            "request_hash",
            "9f86d0…",
            "what was asked: another request under the same key is refused",
        ),
        attribute(
            "payment_intent_id",
            "pi-0001",
            "the payment it made or changed",
        ),
        attribute("transaction_id", "txn-0001", "the movement it began"),
        attribute("status", "COMPLETED", "IN_PROGRESS or COMPLETED"),
        attribute(
            "owner",
            "request-0001",
            "which request has it: identity of a lost answer",
        ),
        attribute(
            "lease_expires_at",
            "1767225630000",
            "epoch ms; then another may go on with it",
        ),
        attribute("response_status", "200", "the first answer"),
        attribute("response_body", "{\"payment\":…}", "byte for byte"),
        attribute("created_at", "1767225600000", "epoch ms"),
        attribute(
            "free_at",
            "1767312000000",
            "epoch ms; then the key is free again, if its outcome is known",
        ),
        attribute(
            "purge_at",
            "1769817600",
            "epoch seconds; then DynamoDB may delete it",
        ),
    ],
};

/// PaymentEventState.
pub const PAYMENT_EVENTS: Table = Table {
    name: "payment_events",
    entity: "PaymentEventState",
    why: "Every change of a payment, in order; and the outbox of those that nobody was told of yet.",
    partition: Key::S("payment_intent_id"),
    sort: Some(Key::N("event_number")),
    indexes: &[Index {
        name: "outbox",
        scope: Scope::Global,
        partition: Key::S("outbox_shard"),
        sort: Some(Key::N("created_at")),
        projection: Projection::KeysOnly,
        why: "Which events have no delivery yet? Having one takes an event out of it",
    }],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("payment_intent_id", "pi-0001", "of which payment"),
        attribute(
            "event_number",
            "3",
            "1, 2, 3 … without a gap: the payment's version",
        ),
        attribute("merchant_id", "shop", "whose"),
        attribute("kind", "payment_intent.succeeded", "what happened"),
        attribute(
            "payload",
            "{\"kind\":…}",
            "what the merchant is sent: the payment as it was then",
        ),
        attribute("created_at", "1767225600000", "epoch ms"),
        attribute(
            "outbox_shard",
            "outbox-2",
            "only until a delivery was made of it",
        ),
    ],
};

/// ReconciliationState.
pub const RECONCILIATIONS: Table = Table {
    name: "reconciliations",
    entity: "ReconciliationState",
    why: "Every decision about what was uncertain, with what it rests on. Nothing changes one.",
    partition: Key::S("transaction_id"),
    sort: Some(Key::N("number")),
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("transaction_id", "txn-0001", "about which movement"),
        attribute("number", "1", "1, 2, 3 …: how often it was looked at"),
        attribute("payment_intent_id", "pi-0001", "of which payment"),
        attribute("attempt_id", "txn-0001-1", "about which attempt"),
        attribute("answer", "Approved", "what the processor said"),
        attribute(
            "decision",
            "APPROVED",
            "WAIT, APPROVED, DECLINED, NEVER_ARRIVED, ABANDONED or DISCREPANCY",
        ),
        attribute("asked_at", "1767225605000", "epoch ms"),
    ],
};

/// WebhookDeliveryState.
pub const WEBHOOK_DELIVERIES: Table = Table {
    name: "webhook_deliveries",
    entity: "WebhookDeliveryState",
    why: "One row for each event on its way to its merchant, beside the one before it, which it waits for.",
    partition: Key::S("payment_intent_id"),
    sort: Some(Key::N("event_number")),
    indexes: &[Index {
        name: "due",
        scope: Scope::Global,
        partition: Key::S("due_shard"),
        sort: Some(Key::N("due_at")),
        projection: Projection::KeysOnly,
        why: "What is to be sent (`due-N`), and what was given up (`dead-N`)? What was delivered is in neither",
    }],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("payment_intent_id", "pi-0001", "of which payment"),
        attribute("event_number", "3", "which of its events"),
        attribute("merchant_id", "shop", "to whom"),
        attribute("payload", "{\"kind\":…}", "what is sent"),
        attribute(
            "status",
            "DELIVERED",
            "PENDING, RETRYING, DELIVERED or FAILED",
        ),
        attribute("attempt", "1", "tries begun; the fence"),
        attribute(
            "lease_owner",
            "try-0001",
            "who tries it: identity of a lost answer",
        ),
        attribute("forgiven", "0", "tries before the last replay"),
        attribute(
            "due_shard",
            "due-2",
            "only while there is something to do, or after giving up",
        ),
        attribute(
            "due_at",
            "1767225600000",
            "epoch ms; the next try, or the end of the lease",
        ),
        attribute("last_answer", "200", "what the merchant said"),
    ],
};

/// LedgerEntryState.
pub const LEDGER: Table = Table {
    name: "ledger",
    entity: "LedgerEntryState",
    why: "Double entry: two rows for each movement that took or gave back money. Nothing changes one.",
    partition: Key::S("payment_intent_id"),
    sort: Some(Key::S("entry_id")),
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("payment_intent_id", "pi-0001", "of which payment"),
        attribute(
            "entry_id",
            "txn-0001#DEBIT",
            "movement and side: booked once",
        ),
        attribute("account", "processor_receivable", "whose"),
        attribute("side", "DEBIT", "DEBIT or CREDIT"),
        attribute("amount", "1999", "minor units, always positive"),
        attribute("currency", "EUR", "ISO 4217"),
        attribute("booked_at", "1767225600000", "epoch ms"),
    ],
};

/// EndpointState.
pub const ENDPOINTS: Table = Table {
    name: "endpoints",
    entity: "EndpointState",
    why: "Where a merchant listens, and what its messages are signed with.",
    partition: Key::S("merchant_id"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("merchant_id", "shop", "whose"),
        attribute("webhook_url", "https://shop.example/webhooks", "where"),
        attribute(
            "secret",
            "whsec_1",
            "in production a reference into a vault",
        ),
        attribute(
            "previous_secret",
            "whsec_0",
            "good while the secrets change",
        ),
        attribute("previous_until", "1767312000000", "epoch ms; until then"),
    ],
};

/// All of them.
pub const TABLES: &[Table] = &[
    PAYMENT_INTENTS,
    TRANSACTIONS,
    EXTERNAL_ATTEMPTS,
    IDEMPOTENCY,
    PAYMENT_EVENTS,
    RECONCILIATIONS,
    WEBHOOK_DELIVERIES,
    LEDGER,
    ENDPOINTS,
];

const CREATE: &str = "TransactWriteItems [Put idempotency if, Put payment_intents, Put payment_events, Put transactions]";
const BEGIN: &str = "TransactWriteItems [Put idempotency if, Put payment_intents if, Put payment_events, Put transactions]";
const READ_BOTH: &str = "TransactGetItems [Get payment_intents, Get transactions]";
const MARK: &str = "TransactWriteItems [Update transactions if, Put external_attempts, Put payment_intents if, Put payment_events]";
const MARK_NEXT: &str = "TransactWriteItems [Update transactions if, Put external_attempts]";
const SEND: &str = "POST processor.test/orders";
const RECORD: &str = "TransactWriteItems [Update transactions if, Update external_attempts, Put payment_intents if, Put payment_events, Put ledger *]";
const UNKNOWN: &str = "TransactWriteItems [Update transactions if, Update external_attempts, Put payment_intents if, Put payment_events]";
const DECIDE: &str = "TransactWriteItems [Update transactions if, Update external_attempts, Put payment_intents if, Put payment_events, Put ledger *, Put reconciliations if]";
const FINISH: &str = "UpdateItem idempotency if";
const ASK: &str = "GET processor.test/orders/{attempt_id}";
const CLOSE: &str = "POST processor.test/orders/{attempt_id}/close";

/// What each action writes, in both layers, and the calls it may make. The names are the documents'.
pub const ACTIONS: &[Action] = &[
    Action {
        name: "create payment intent",
        entities: &[
            "PaymentIntentState",
            "TransactionState",
            "IdempotencyState",
            "PaymentEventState",
        ],
        abstract_layer: "create target, create transaction workflow root",
        concrete_layer: "Put on payment_intents with status=CREATED, in one transaction with its key, its charge and its event",
        calls: &[
            Calls {
                when: "charged or declined",
                sequence: &[CREATE, MARK, SEND, RECORD, FINISH],
            },
            Calls {
                when: "the processor is away",
                sequence: &[
                    CREATE,
                    MARK,
                    SEND,
                    CLOSE,
                    "TransactWriteItems [Update transactions if, Update external_attempts]",
                    MARK_NEXT,
                    SEND,
                    CLOSE,
                    "TransactWriteItems [Update transactions if, Update external_attempts]",
                    MARK_NEXT,
                    SEND,
                    CLOSE,
                    RECORD,
                    FINISH,
                ],
            },
        ],
    },
    Action {
        name: "start charge attempt",
        entities: &["TransactionState", "PaymentIntentState", "IdempotencyState"],
        abstract_layer: "create target, create money-movement attempt",
        concrete_layer: "Put on transactions with type=CHARGE, status=PENDING, in one transaction with key, payment and event, if the payment's version is the one read and it has no open movement",
        calls: &[Calls {
            when: "another card",
            sequence: &[
                "GetItem payment_intents",
                "GetItem idempotency",
                BEGIN,
                MARK,
                SEND,
                RECORD,
                FINISH,
            ],
        }],
    },
    Action {
        name: "record idempotency key",
        entities: &["IdempotencyState"],
        abstract_layer: "create target, dedup request intent",
        concrete_layer: "Put on idempotency if attribute_not_exists(idempotency_key), or answered a day ago, in the transaction that makes what it stands for",
        calls: &[Calls {
            when: "refused: another request",
            sequence: &[CREATE],
        }],
    },
    Action {
        name: "mark processing",
        entities: &[
            "PaymentIntentState",
            "TransactionState",
            "ExternalAuthorizationAttemptState",
        ],
        abstract_layer: "state transition, guarded workflow transition",
        concrete_layer: "transaction PENDING → SENT and the attempt written down, with the payment CREATED or RETRYABLE → PROCESSING, before anything is sent",
        calls: &[Calls {
            when: "first attempt",
            sequence: &[MARK],
        }],
    },
    Action {
        name: "send authorization",
        entities: &["ExternalAuthorizationAttemptState"],
        abstract_layer: "state transition, external side effect / network attempt",
        concrete_layer: "POST to the processor with the attempt as its idempotency key",
        calls: &[Calls {
            when: "any",
            sequence: &[SEND],
        }],
    },
    Action {
        name: "record response",
        entities: &[
            "TransactionState",
            "PaymentIntentState",
            "ExternalAuthorizationAttemptState",
            "LedgerEntryState",
            "PaymentEventState",
        ],
        abstract_layer: "state transition, guarded conditional update of workflow and attempt state",
        concrete_layer: "movement, attempt, payment, ledger and event in one transaction, if the movement is out with this attempt and the payment's version is the one read",
        calls: &[
            Calls {
                when: "the response",
                sequence: &[RECORD],
            },
            Calls {
                when: "a notice",
                sequence: &["GetItem external_attempts", READ_BOTH, RECORD],
            },
            Calls {
                when: "a notice that comes late",
                sequence: &["GetItem external_attempts", READ_BOTH],
            },
        ],
    },
    Action {
        name: "mark uncertain outcome",
        entities: &["TransactionState", "PaymentIntentState"],
        abstract_layer: "state transition, move into uncertain/pending state instead of assuming failure",
        concrete_layer: "transaction SENT → PENDING_NETWORK_RESULT and payment → REQUIRES_RECONCILIATION in one transaction; the request is answered 202",
        calls: &[Calls {
            when: "in a request",
            sequence: &[CREATE, MARK, SEND, UNKNOWN, FINISH],
        }],
    },
    Action {
        name: "emit event",
        entities: &["PaymentEventState", "WebhookDeliveryState"],
        abstract_layer: "create target, durable async event",
        concrete_layer: "Put on payment_events in the transaction of the change; the relay queries the outbox and makes a delivery of each",
        calls: &[Calls {
            when: "relay",
            sequence: &[
                "Query payment_events/outbox",
                "GetItem payment_events",
                "TransactWriteItems [Put webhook_deliveries if, Update payment_events]",
                "GetItem payment_events",
                "TransactWriteItems [Put webhook_deliveries if, Update payment_events]",
                "GetItem payment_events",
                "TransactWriteItems [Put webhook_deliveries if, Update payment_events]",
            ],
        }],
    },
    Action {
        name: "reconcile payment",
        entities: &[
            "ReconciliationState",
            "TransactionState",
            "PaymentIntentState",
        ],
        abstract_layer: "state transition, reconciliation against external source of truth",
        concrete_layer: "Query transactions/open; ask the processor by the attempt's key; decision, movement and payment in one transaction",
        calls: &[
            Calls {
                when: "the processor knows",
                sequence: &["Query transactions/open", READ_BOTH, ASK, DECIDE],
            },
            Calls {
                when: "it never arrived",
                sequence: &["Query transactions/open", READ_BOTH, ASK, CLOSE, DECIDE],
            },
            Calls {
                when: "nobody can tell yet",
                sequence: &[
                    "Query transactions/open",
                    READ_BOTH,
                    ASK,
                    "TransactWriteItems [Update transactions if, Put reconciliations if]",
                ],
            },
            Calls {
                when: "never sent",
                sequence: &[
                    "Query transactions/open",
                    READ_BOTH,
                    "TransactWriteItems [Update transactions if, Put payment_intents if, Put payment_events, Put reconciliations if]",
                ],
            },
        ],
    },
    Action {
        name: "deliver webhook",
        entities: &["WebhookDeliveryState"],
        abstract_layer: "create target / state transition, async external notification",
        concrete_layer: "claim with lease and fence, POST signed with HMAC, then DELIVERED, RETRYING with the next time, or FAILED",
        calls: &[
            Calls {
                when: "its turn",
                sequence: &[
                    "BatchGetItem [Get webhook_deliveries *]",
                    "GetItem endpoints",
                    "UpdateItem webhook_deliveries if",
                    "POST shop.test/webhooks",
                    "UpdateItem webhook_deliveries if",
                ],
            },
            Calls {
                when: "the one before it has not ended",
                sequence: &["BatchGetItem [Get webhook_deliveries *]"],
            },
        ],
    },
    Action {
        name: "view payment status",
        entities: &["PaymentIntentState"],
        abstract_layer: "read source",
        concrete_layer: "GetItem on payment_intents by payment_intent_id, consistent",
        calls: &[Calls {
            when: "any",
            sequence: &["GetItem payment_intents"],
        }],
    },
    Action {
        name: "retry payment request",
        entities: &["IdempotencyState", "PaymentIntentState"],
        abstract_layer: "retry-safe dedup and result reuse",
        concrete_layer: "the same transaction again: its guard refuses it and brings the key, with the first answer, a lease that runs, or one that can be taken over",
        calls: &[
            Calls {
                when: "answered before, or running",
                sequence: &[CREATE],
            },
            Calls {
                when: "its worker is gone",
                sequence: &[
                    CREATE,
                    "UpdateItem idempotency if",
                    READ_BOTH,
                    SEND,
                    RECORD,
                    FINISH,
                ],
            },
        ],
    },
    Action {
        name: "move money",
        entities: &[
            "TransactionState",
            "PaymentIntentState",
            "IdempotencyState",
            "LedgerEntryState",
        ],
        abstract_layer: "create target, guarded workflow transition (beyond the documents)",
        concrete_layer: "capture, void or refund: the same steps as a charge, for a part or all of what is held or was taken",
        calls: &[
            Calls {
                when: "capture, void or refund",
                sequence: &[
                    "GetItem payment_intents",
                    "GetItem idempotency",
                    BEGIN,
                    MARK_NEXT,
                    SEND,
                    RECORD,
                    FINISH,
                ],
            },
            Calls {
                when: "refused by the rules",
                sequence: &["GetItem payment_intents", "GetItem idempotency"],
            },
        ],
    },
    Action {
        name: "expire authorization",
        entities: &["PaymentIntentState", "TransactionState"],
        abstract_layer: "state transition, timed release / expiry (beyond the documents)",
        concrete_layer: "Query payment_intents/expiring; void what is over, without a key",
        calls: &[Calls {
            when: "one is over",
            sequence: &[
                "Query payment_intents/expiring",
                "GetItem payment_intents",
                "TransactWriteItems [Put payment_intents if, Put payment_events, Put transactions]",
                MARK_NEXT,
                SEND,
                RECORD,
            ],
        }],
    },
];

/// The states and what moves them.
pub const MACHINES: &[Machine] = &[
    Machine {
        entity: "PaymentIntentState",
        states: &[
            "CREATED",
            "PROCESSING",
            "REQUIRES_RECONCILIATION",
            "RETRYABLE",
            "AUTHORIZED",
            "SUCCEEDED",
            "FAILED",
            "CANCELLED",
            "EXPIRED",
        ],
        transitions: &[
            step("", "CREATED", "create payment intent"),
            step("CREATED", "PROCESSING", "mark processing"),
            step("CREATED", "RETRYABLE", "reconcile payment"),
            step("PROCESSING", "SUCCEEDED", "record response"),
            step("PROCESSING", "AUTHORIZED", "record response"),
            step("PROCESSING", "RETRYABLE", "record response"),
            step("PROCESSING", "FAILED", "record response"),
            step(
                "PROCESSING",
                "REQUIRES_RECONCILIATION",
                "mark uncertain outcome",
            ),
            step("REQUIRES_RECONCILIATION", "SUCCEEDED", "reconcile payment"),
            step("REQUIRES_RECONCILIATION", "AUTHORIZED", "reconcile payment"),
            step("REQUIRES_RECONCILIATION", "RETRYABLE", "reconcile payment"),
            step("REQUIRES_RECONCILIATION", "FAILED", "reconcile payment"),
            step("RETRYABLE", "PROCESSING", "mark processing"),
            step("RETRYABLE", "CANCELLED", "move money"),
            step("AUTHORIZED", "SUCCEEDED", "move money"),
            step("AUTHORIZED", "CANCELLED", "move money"),
            step("AUTHORIZED", "EXPIRED", "expire authorization"),
        ],
    },
    Machine {
        entity: "TransactionState",
        states: &[
            "PENDING",
            "SENT",
            "PENDING_NETWORK_RESULT",
            "AUTHORIZED",
            "SUCCEEDED",
            "DECLINED",
            "FAILED",
        ],
        transitions: &[
            step("", "PENDING", "start charge attempt"),
            step("PENDING", "SENT", "mark processing"),
            step("PENDING", "FAILED", "reconcile payment"),
            step("SENT", "PENDING", "send authorization"),
            step("SENT", "AUTHORIZED", "record response"),
            step("SENT", "SUCCEEDED", "record response"),
            step("SENT", "DECLINED", "record response"),
            step("SENT", "FAILED", "record response"),
            step("SENT", "PENDING_NETWORK_RESULT", "mark uncertain outcome"),
            step("PENDING_NETWORK_RESULT", "AUTHORIZED", "reconcile payment"),
            step("PENDING_NETWORK_RESULT", "SUCCEEDED", "reconcile payment"),
            step("PENDING_NETWORK_RESULT", "DECLINED", "reconcile payment"),
            step("PENDING_NETWORK_RESULT", "FAILED", "reconcile payment"),
        ],
    },
    Machine {
        entity: "WebhookDeliveryState",
        states: &["PENDING", "RETRYING", "DELIVERED", "FAILED"],
        transitions: &[
            step("", "PENDING", "emit event"),
            step("PENDING", "RETRYING", "deliver webhook"),
            step("RETRYING", "DELIVERED", "deliver webhook"),
            step("RETRYING", "FAILED", "deliver webhook"),
            step("FAILED", "PENDING", "deliver webhook"),
        ],
    },
];
