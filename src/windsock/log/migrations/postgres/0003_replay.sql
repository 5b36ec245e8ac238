ALTER TABLE entries ADD COLUMN replay TEXT;
CREATE INDEX entries_replay ON entries (replay, state) WHERE replay IS NOT NULL;

CREATE TABLE replays (
    id TEXT PRIMARY KEY,
    dag_id TEXT,
    cap BIGINT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    finished_at DOUBLE PRECISION
);

CREATE TABLE replayed (
    replay TEXT NOT NULL,
    subscription_id BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (replay, subscription_id, seq)
);
CREATE INDEX replayed_planned ON replayed (replay, seq) WHERE state = 'planned';
