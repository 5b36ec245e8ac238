ALTER TABLE dead_letters ADD COLUMN retries INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dead_letters ADD COLUMN tried_at REAL;
CREATE INDEX dead_letters_retry ON dead_letters (watcher_id, category, retries) WHERE state = 'dead';
CREATE INDEX dead_letters_at ON dead_letters (at);

-- What the tasks of a run failed with, until the run is settled.
CREATE TABLE failures (
    dag_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    task TEXT NOT NULL,
    category TEXT,
    error TEXT NOT NULL,
    seqs TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (dag_id, run_id, task)
) WITHOUT ROWID;
