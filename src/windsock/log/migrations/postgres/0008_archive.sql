CREATE TABLE archives (
    path TEXT PRIMARY KEY,
    watcher_id BIGINT NOT NULL,
    state TEXT NOT NULL,
    first_seq BIGINT NOT NULL,
    last_seq BIGINT NOT NULL,
    first_at DOUBLE PRECISION NOT NULL,
    last_at DOUBLE PRECISION NOT NULL,
    count BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    sha256 TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL
);
CREATE INDEX archives_watcher ON archives (watcher_id, first_seq);

CREATE TABLE restored (
    seq BIGINT PRIMARY KEY,
    at DOUBLE PRECISION NOT NULL
);

CREATE TABLE erasures (
    id TEXT PRIMARY KEY,
    begun_at DOUBLE PRECISION NOT NULL,
    receipt TEXT NOT NULL
);
