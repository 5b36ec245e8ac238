ALTER TABLE entries ADD COLUMN replay TEXT;
CREATE INDEX entries_replay ON entries (replay, state) WHERE replay IS NOT NULL;

CREATE TABLE replays (
    id TEXT PRIMARY KEY,
    dag_id TEXT,
    cap INTEGER NOT NULL,
    created_at REAL NOT NULL,
    finished_at REAL
);

CREATE TABLE replayed (
    replay TEXT NOT NULL,
    subscription_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (replay, subscription_id, seq)
) WITHOUT ROWID;
CREATE INDEX replayed_planned ON replayed (replay, seq) WHERE state = 'planned';
