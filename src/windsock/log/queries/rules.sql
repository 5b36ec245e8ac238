-- What rules remember, and what they ask of the log.

-- name: put_rule_state
-- A key's state, new or changed.
INSERT INTO rule_state (source, key, state, expires_at) VALUES (:source, :key, :state, :expires_at)
ON CONFLICT (source, key) DO UPDATE SET state = excluded.state, expires_at = excluded.expires_at

-- name: forget_rule_state
-- A key that nothing is known of any more.
DELETE FROM rule_state WHERE source = :source AND key = :key

-- name: rule_states
-- What a source remembers, a page at a time, in the order of the keys.
SELECT key, state, expires_at FROM rule_state WHERE source = :source AND key > :after ORDER BY key LIMIT :size

-- name: rule_state
-- What a source remembers of one key.
SELECT key, state, expires_at FROM rule_state WHERE source = :source AND key = :key

-- name: marks
-- How far every watcher is.
SELECT name, last_seq, spec FROM watchers ORDER BY name

-- name: count_after
-- How many events of a watcher are stored after a position.
SELECT COUNT(*) AS n FROM events
WHERE watcher_id = (SELECT id FROM watchers WHERE name = :watcher) AND seq > :after

-- name: arrivals
-- When the newest events of a watcher came.
SELECT received_at FROM events
WHERE watcher_id = (SELECT id FROM watchers WHERE name = :watcher) AND received_at >= :since
ORDER BY seq DESC LIMIT :limit
