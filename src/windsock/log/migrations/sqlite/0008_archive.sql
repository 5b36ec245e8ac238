CREATE TABLE archives (
    path TEXT PRIMARY KEY,
    watcher_id INTEGER NOT NULL,
    state TEXT NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    first_at REAL NOT NULL,
    last_at REAL NOT NULL,
    count INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    at REAL NOT NULL
);
CREATE INDEX archives_watcher ON archives (watcher_id, first_seq);

CREATE TABLE restored (
    seq INTEGER PRIMARY KEY,
    at REAL NOT NULL
);

CREATE TABLE erasures (
    id TEXT PRIMARY KEY,
    begun_at REAL NOT NULL,
    receipt TEXT NOT NULL
);
