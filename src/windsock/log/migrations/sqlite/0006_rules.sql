CREATE TABLE rule_state (
    source TEXT NOT NULL,
    key TEXT NOT NULL,
    state BLOB NOT NULL,
    expires_at REAL,
    PRIMARY KEY (source, key)
) WITHOUT ROWID
