CREATE TABLE counter (next_seq INTEGER NOT NULL);
INSERT INTO counter VALUES (1);

CREATE TABLE sources (
    name TEXT PRIMARY KEY,
    cursor TEXT,
    owner TEXT,
    state TEXT,
    lag INTEGER,
    error TEXT,
    heartbeat_at REAL
);

CREATE TABLE leases (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    expires_at REAL NOT NULL
);

CREATE TABLE watchers (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    asset TEXT,
    source TEXT NOT NULL,
    spec TEXT NOT NULL,
    batch_size INTEGER NOT NULL,
    batch_bytes INTEGER NOT NULL,
    batch_within REAL NOT NULL,
    batch_quiet REAL NOT NULL,
    dedupe REAL,
    ordered INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    retry_delay REAL NOT NULL,
    last_seq INTEGER NOT NULL DEFAULT 0,
    closed_seq INTEGER NOT NULL DEFAULT 0,
    open_first INTEGER,
    open_count INTEGER NOT NULL DEFAULT 0,
    open_bytes INTEGER NOT NULL DEFAULT 0,
    opened_at REAL,
    last_event_at REAL,
    logged INTEGER NOT NULL DEFAULT 0,
    duplicates INTEGER NOT NULL DEFAULT 0,
    filtered INTEGER NOT NULL DEFAULT 0,
    dead INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX watchers_asset ON watchers (asset);

CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    watcher_id INTEGER NOT NULL,
    id TEXT NOT NULL,
    type TEXT NOT NULL,
    key TEXT,
    received_at REAL NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX events_watcher ON events (watcher_id, seq);
-- The end of an id tells it from others as well as the whole, in an index of half the size. Ids come in any
-- order, so a commit writes almost every page of this index anew.
CREATE INDEX events_id ON events (substr(id, -12));
CREATE INDEX events_key ON events (key) WHERE key IS NOT NULL;

CREATE TABLE dedup (
    hash BLOB PRIMARY KEY,
    seq INTEGER NOT NULL,
    expires_at REAL
) WITHOUT ROWID;

CREATE TABLE batches (
    id INTEGER PRIMARY KEY,
    watcher_id INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    count INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    reason TEXT NOT NULL,
    closed_at REAL NOT NULL,
    announced_at REAL
);
CREATE INDEX batches_watcher ON batches (watcher_id, last_seq);

CREATE TABLE announcements (
    id TEXT PRIMARY KEY,
    watcher_id INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    up_to INTEGER NOT NULL,
    count INTEGER NOT NULL,
    at REAL NOT NULL
);

CREATE TABLE subscriptions (
    id INTEGER PRIMARY KEY,
    watcher_id INTEGER NOT NULL,
    dag_id TEXT NOT NULL,
    active INTEGER NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0,
    explicit INTEGER NOT NULL DEFAULT 0,
    start_seq INTEGER NOT NULL,
    frontier INTEGER NOT NULL,
    claims INTEGER NOT NULL DEFAULT 0,
    woken_at REAL,
    wake_at REAL,
    wakes INTEGER NOT NULL DEFAULT 0,
    UNIQUE (watcher_id, dag_id)
);
CREATE INDEX subscriptions_dag ON subscriptions (dag_id);

CREATE TABLE claims (
    id INTEGER PRIMARY KEY,
    subscription_id INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    state TEXT NOT NULL,
    implicit INTEGER NOT NULL,
    ranges TEXT NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    claimed_at REAL NOT NULL,
    settled_at REAL,
    UNIQUE (subscription_id, run_id)
);
CREATE INDEX claims_active ON claims (state) WHERE state = 'active';

CREATE TABLE entries (
    subscription_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    claim_id INTEGER,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    available_at REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (subscription_id, seq)
) WITHOUT ROWID;
CREATE INDEX entries_waiting ON entries (subscription_id, state, seq) WHERE state IN ('pending', 'blocked');
CREATE INDEX entries_claim ON entries (claim_id);

CREATE TABLE dead_letters (
    id INTEGER PRIMARY KEY,
    watcher_id INTEGER NOT NULL,
    seq INTEGER,
    dag_id TEXT,
    run_id TEXT,
    stage TEXT NOT NULL,
    category TEXT NOT NULL,
    reason TEXT NOT NULL,
    error TEXT,
    attempts INTEGER NOT NULL,
    at REAL NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX dead_letters_watcher ON dead_letters (watcher_id, id);
CREATE INDEX dead_letters_seq ON dead_letters (seq);
