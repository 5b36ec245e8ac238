CREATE TABLE rule_state (
    source TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    state BYTEA NOT NULL,
    expires_at DOUBLE PRECISION,
    PRIMARY KEY (source, key)
);
