ALTER TABLE dead_letters ADD COLUMN event_id TEXT;
ALTER TABLE dead_letters ADD COLUMN first_at REAL;
ALTER TABLE dead_letters ADD COLUMN state TEXT NOT NULL DEFAULT 'dead';
ALTER TABLE dead_letters ADD COLUMN settled_at REAL;
UPDATE dead_letters SET first_at = at,
    event_id = (SELECT e.id FROM events e WHERE e.seq = dead_letters.seq);
CREATE INDEX dead_letters_event ON dead_letters (event_id);
CREATE INDEX dead_letters_state ON dead_letters (state, id);
