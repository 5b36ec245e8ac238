-- Where a Dag begins, and moving its place.

-- name: last_before
-- The newest event of a watcher that came before a time.
SELECT COALESCE(MAX(seq), 0) AS seq FROM events WHERE watcher_id = :watcher_id AND received_at < :at

-- name: count_unseen
-- Events of a watcher after a position, up to where a Dag began, that it was never given.
SELECT COUNT(*) AS n FROM events e
WHERE e.watcher_id = :watcher_id AND e.seq > :target AND e.seq <= :start_seq
    AND NOT EXISTS (SELECT 1 FROM entries x WHERE x.subscription_id = :id AND x.seq = e.seq)

-- name: count_seen
-- Events after a position that a Dag has had already.
SELECT COUNT(*) AS n FROM entries WHERE subscription_id = :id AND seq > :target AND state IN ('done', 'dead')

-- name: count_skippable
-- Events up to a position that wait for a Dag.
SELECT (SELECT COUNT(*) FROM events e
        WHERE e.watcher_id = :watcher_id AND e.seq > :frontier AND e.seq <= :target)
    + (SELECT COUNT(*) FROM entries x WHERE x.subscription_id = :id AND x.seq <= :target
        AND x.state IN ('pending', 'blocked')) AS n

-- name: give_unseen
-- A Dag gets a row for each event before its beginning that it was never given.
INSERT INTO entries (subscription_id, seq, claim_id, state)
SELECT :id, e.seq, NULL, 'pending' FROM events e
WHERE e.watcher_id = :watcher_id AND e.seq > :target AND e.seq <= :start_seq
ON CONFLICT (subscription_id, seq) DO NOTHING

-- name: begin_earlier
-- A Dag began earlier than it did.
UPDATE subscriptions SET start_seq = :target WHERE id = :id AND start_seq > :target

-- name: skip_fresh
-- A Dag gets a settled row for each event that it passes over.
INSERT INTO entries (subscription_id, seq, claim_id, state)
SELECT :id, e.seq, NULL, 'done' FROM events e
WHERE e.watcher_id = :watcher_id AND e.seq > :frontier AND e.seq <= :target

-- name: skip_waiting
-- What waits for a Dag up to a position does so no more.
UPDATE entries SET state = 'done', claim_id = NULL
WHERE subscription_id = :id AND seq <= :target AND state IN ('pending', 'blocked')

-- name: wake_place
-- A Dag is told anew of what waits for it.
UPDATE subscriptions SET claims = claims + 1, woken_at = NULL, wakes = 0 WHERE id = :id
