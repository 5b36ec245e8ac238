CREATE TABLE verdicts (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    watcher_id BIGINT NOT NULL,
    event_id TEXT NOT NULL,
    stage TEXT NOT NULL,
    verdict TEXT NOT NULL,
    reason TEXT NOT NULL,
    seq BIGINT,
    at DOUBLE PRECISION NOT NULL,
    body BYTEA NOT NULL
);
CREATE INDEX verdicts_watcher ON verdicts (watcher_id, id);
CREATE INDEX verdicts_event ON verdicts (event_id);
