ALTER TABLE watchers ADD COLUMN history INTEGER NOT NULL DEFAULT 0;

-- Only events of watchers with a history have it, so the others pay nothing for the index.
ALTER TABLE events ADD COLUMN subject TEXT;
CREATE INDEX events_subject ON events (subject, seq) WHERE subject IS NOT NULL;

CREATE TABLE snapshots (
    subject TEXT NOT NULL,
    reducer TEXT NOT NULL,
    seq INTEGER NOT NULL,
    version TEXT NOT NULL,
    events INTEGER NOT NULL,
    last_at REAL NOT NULL,
    state BLOB NOT NULL,
    PRIMARY KEY (subject, reducer, seq)
) WITHOUT ROWID;

CREATE TABLE standings (
    machine TEXT NOT NULL,
    subject TEXT NOT NULL,
    state TEXT NOT NULL,
    moves INTEGER NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (machine, subject)
) WITHOUT ROWID;
CREATE INDEX standings_state ON standings (machine, state, subject);

CREATE TABLE moves (
    id INTEGER PRIMARY KEY,
    machine TEXT NOT NULL,
    subject TEXT NOT NULL,
    event TEXT NOT NULL,
    event_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    seq INTEGER,
    delivery TEXT NOT NULL,
    before TEXT NOT NULL,
    after TEXT,
    reason TEXT NOT NULL,
    at REAL NOT NULL,
    UNIQUE (machine, event)
);
CREATE INDEX moves_subject ON moves (subject, id);

CREATE TABLE sagas (
    saga TEXT NOT NULL,
    id TEXT NOT NULL,
    state TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    delivery TEXT NOT NULL,
    data BLOB NOT NULL,
    error TEXT,
    started_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    PRIMARY KEY (saga, id)
) WITHOUT ROWID;
CREATE INDEX sagas_open ON sagas (saga, updated_at) WHERE state IN ('running', 'compensating');

CREATE TABLE saga_steps (
    saga TEXT NOT NULL,
    id TEXT NOT NULL,
    step TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    undo_attempts INTEGER NOT NULL,
    result BLOB,
    error TEXT,
    at REAL NOT NULL,
    PRIMARY KEY (saga, id, step)
) WITHOUT ROWID;

CREATE TABLE views (
    name TEXT NOT NULL,
    generation INTEGER NOT NULL,
    version TEXT NOT NULL,
    position INTEGER NOT NULL,
    events INTEGER NOT NULL,
    live INTEGER NOT NULL,
    updated_at REAL NOT NULL,
    PRIMARY KEY (name, generation)
) WITHOUT ROWID;

CREATE TABLE view_rows (
    name TEXT NOT NULL,
    generation INTEGER NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (name, generation, key)
) WITHOUT ROWID;
