ALTER TABLE watchers ADD COLUMN history INTEGER NOT NULL DEFAULT 0;

-- Only events of watchers with a history have it, so the others pay nothing for the index.
ALTER TABLE events ADD COLUMN subject TEXT;
CREATE INDEX events_subject ON events (subject, seq) WHERE subject IS NOT NULL;

CREATE TABLE snapshots (
    subject TEXT NOT NULL,
    reducer TEXT NOT NULL,
    seq BIGINT NOT NULL,
    version TEXT NOT NULL,
    events BIGINT NOT NULL,
    last_at DOUBLE PRECISION NOT NULL,
    state BYTEA NOT NULL,
    PRIMARY KEY (subject, reducer, seq)
);

CREATE TABLE standings (
    machine TEXT NOT NULL,
    subject TEXT COLLATE "C" NOT NULL,
    state TEXT NOT NULL,
    moves BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (machine, subject)
);
CREATE INDEX standings_state ON standings (machine, state, subject);

CREATE TABLE moves (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    machine TEXT NOT NULL,
    subject TEXT NOT NULL,
    event TEXT NOT NULL,
    event_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    seq BIGINT,
    delivery TEXT NOT NULL,
    before TEXT NOT NULL,
    after TEXT,
    reason TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    UNIQUE (machine, event)
);
CREATE INDEX moves_subject ON moves (subject, id);

CREATE TABLE sagas (
    saga TEXT NOT NULL,
    id TEXT NOT NULL,
    state TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    delivery TEXT NOT NULL,
    data BYTEA NOT NULL,
    error TEXT,
    started_at DOUBLE PRECISION NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (saga, id)
);
CREATE INDEX sagas_open ON sagas (saga, updated_at) WHERE state IN ('running', 'compensating');

CREATE TABLE saga_steps (
    saga TEXT NOT NULL,
    id TEXT NOT NULL,
    step TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    undo_attempts BIGINT NOT NULL,
    result BYTEA,
    error TEXT,
    at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (saga, id, step)
);

CREATE TABLE views (
    name TEXT NOT NULL,
    generation BIGINT NOT NULL,
    version TEXT NOT NULL,
    position BIGINT NOT NULL,
    events BIGINT NOT NULL,
    live BIGINT NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (name, generation)
);

CREATE TABLE view_rows (
    name TEXT NOT NULL,
    generation BIGINT NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    value BYTEA NOT NULL,
    PRIMARY KEY (name, generation, key)
);
