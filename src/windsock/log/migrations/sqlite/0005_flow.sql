ALTER TABLE watchers ADD COLUMN batch_leading INTEGER NOT NULL DEFAULT 0;
ALTER TABLE watchers ADD COLUMN batch_target REAL NOT NULL DEFAULT 0;
ALTER TABLE watchers ADD COLUMN dedupe_asset INTEGER NOT NULL DEFAULT 0;
ALTER TABLE watchers ADD COLUMN ordering TEXT;
ALTER TABLE watchers ADD COLUMN throttle REAL NOT NULL DEFAULT 0;
ALTER TABLE watchers ADD COLUMN announced_at REAL;
ALTER TABLE watchers ADD COLUMN rate_count INTEGER;
ALTER TABLE watchers ADD COLUMN rate_window REAL;
ALTER TABLE watchers ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE watchers ADD COLUMN max_age REAL;
ALTER TABLE watchers ADD COLUMN held INTEGER NOT NULL DEFAULT 0;
ALTER TABLE watchers ADD COLUMN late INTEGER NOT NULL DEFAULT 0;

ALTER TABLE subscriptions ADD COLUMN rate_at REAL;
ALTER TABLE subscriptions ADD COLUMN rate_used INTEGER NOT NULL DEFAULT 0;

CREATE TABLE sequences (
    watcher_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (watcher_id, key)
) WITHOUT ROWID;

CREATE TABLE held (
    watcher_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    number INTEGER NOT NULL,
    held_at REAL NOT NULL,
    event_id TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (watcher_id, key, number)
);
CREATE INDEX held_event ON held (event_id);
