CREATE SEQUENCE event_seq;

CREATE TABLE sources (
    name TEXT PRIMARY KEY,
    cursor TEXT,
    owner TEXT,
    state TEXT,
    lag BIGINT,
    error TEXT,
    heartbeat_at DOUBLE PRECISION
);

CREATE TABLE leases (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL
);

CREATE TABLE watchers (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    asset TEXT,
    source TEXT NOT NULL,
    spec TEXT NOT NULL,
    batch_size INTEGER NOT NULL,
    batch_bytes BIGINT NOT NULL,
    batch_within DOUBLE PRECISION NOT NULL,
    batch_quiet DOUBLE PRECISION NOT NULL,
    dedupe DOUBLE PRECISION,
    ordered INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    retry_delay DOUBLE PRECISION NOT NULL,
    last_seq BIGINT NOT NULL DEFAULT 0,
    closed_seq BIGINT NOT NULL DEFAULT 0,
    open_first BIGINT,
    open_count INTEGER NOT NULL DEFAULT 0,
    open_bytes BIGINT NOT NULL DEFAULT 0,
    opened_at DOUBLE PRECISION,
    last_event_at DOUBLE PRECISION,
    logged BIGINT NOT NULL DEFAULT 0,
    duplicates BIGINT NOT NULL DEFAULT 0,
    filtered BIGINT NOT NULL DEFAULT 0,
    dead BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX watchers_asset ON watchers (asset);

CREATE TABLE events (
    seq BIGINT PRIMARY KEY,
    watcher_id BIGINT NOT NULL,
    id TEXT NOT NULL,
    type TEXT NOT NULL,
    key TEXT,
    received_at DOUBLE PRECISION NOT NULL,
    body BYTEA NOT NULL
);
CREATE INDEX events_watcher ON events (watcher_id, seq);
CREATE INDEX events_id ON events USING hash (id);
CREATE INDEX events_key ON events USING hash (key) WHERE key IS NOT NULL;

CREATE TABLE dedup (
    hash BYTEA PRIMARY KEY,
    seq BIGINT NOT NULL,
    expires_at DOUBLE PRECISION
);

CREATE TABLE batches (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    watcher_id BIGINT NOT NULL,
    first_seq BIGINT NOT NULL,
    last_seq BIGINT NOT NULL,
    count BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    reason TEXT NOT NULL,
    closed_at DOUBLE PRECISION NOT NULL,
    announced_at DOUBLE PRECISION
);
CREATE INDEX batches_watcher ON batches (watcher_id, last_seq);

CREATE TABLE announcements (
    id TEXT PRIMARY KEY,
    watcher_id BIGINT NOT NULL,
    first_seq BIGINT NOT NULL,
    up_to BIGINT NOT NULL,
    count BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL
);

CREATE TABLE subscriptions (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    watcher_id BIGINT NOT NULL,
    dag_id TEXT NOT NULL,
    active INTEGER NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0,
    explicit INTEGER NOT NULL DEFAULT 0,
    start_seq BIGINT NOT NULL,
    frontier BIGINT NOT NULL,
    claims BIGINT NOT NULL DEFAULT 0,
    woken_at DOUBLE PRECISION,
    wake_at DOUBLE PRECISION,
    wakes INTEGER NOT NULL DEFAULT 0,
    UNIQUE (watcher_id, dag_id)
);
CREATE INDEX subscriptions_dag ON subscriptions (dag_id);

CREATE TABLE claims (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription_id BIGINT NOT NULL,
    run_id TEXT NOT NULL,
    state TEXT NOT NULL,
    implicit INTEGER NOT NULL,
    ranges TEXT NOT NULL,
    first_seq BIGINT NOT NULL,
    last_seq BIGINT NOT NULL,
    claimed_at DOUBLE PRECISION NOT NULL,
    settled_at DOUBLE PRECISION,
    UNIQUE (subscription_id, run_id)
);
CREATE INDEX claims_active ON claims (state) WHERE state = 'active';

CREATE TABLE entries (
    subscription_id BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    claim_id BIGINT,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    available_at DOUBLE PRECISION NOT NULL DEFAULT 0,
    PRIMARY KEY (subscription_id, seq)
);
CREATE INDEX entries_waiting ON entries (subscription_id, state, seq) WHERE state IN ('pending', 'blocked');
CREATE INDEX entries_claim ON entries (claim_id);

CREATE TABLE dead_letters (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    watcher_id BIGINT NOT NULL,
    seq BIGINT,
    dag_id TEXT,
    run_id TEXT,
    stage TEXT NOT NULL,
    category TEXT NOT NULL,
    reason TEXT NOT NULL,
    error TEXT,
    attempts INTEGER NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    body BYTEA NOT NULL
);
CREATE INDEX dead_letters_watcher ON dead_letters (watcher_id, id);
CREATE INDEX dead_letters_seq ON dead_letters (seq);
