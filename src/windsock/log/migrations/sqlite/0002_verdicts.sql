CREATE TABLE verdicts (
    id INTEGER PRIMARY KEY,
    watcher_id INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    stage TEXT NOT NULL,
    verdict TEXT NOT NULL,
    reason TEXT NOT NULL,
    seq INTEGER,
    at REAL NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX verdicts_watcher ON verdicts (watcher_id, id);
CREATE INDEX verdicts_event ON verdicts (event_id);
