-- Order by a number.

-- name: next_number
-- The number that comes next in a key.
SELECT number FROM sequences WHERE watcher_id = :watcher_id AND key = :key

-- name: put_next_number
-- A key has gone on.
INSERT INTO sequences (watcher_id, key, number) VALUES (:watcher_id, :key, :number)
ON CONFLICT (watcher_id, key) DO UPDATE SET number = excluded.number

-- name: hold_event
-- An event ahead of its turn; a second one with the same number is the same event.
INSERT INTO held (watcher_id, key, number, held_at, event_id, body)
VALUES (:watcher_id, :key, :number, :now, :event_id, :body)
ON CONFLICT (watcher_id, key, number) DO NOTHING

-- name: held_from
-- What is held of a key from a number on.
SELECT number, body FROM held WHERE watcher_id = :watcher_id AND key = :key AND number >= :number
ORDER BY number

-- name: forget_held
-- Held events that were let go or set aside.
DELETE FROM held WHERE watcher_id = :watcher_id AND key = :key AND number <= :up_to

-- name: stuck_keys
-- Keys whose gap is too old, or that hold too much behind it.
SELECT key, MIN(number) AS first FROM held WHERE watcher_id = :watcher_id
GROUP BY key HAVING MIN(held_at) <= :before OR COUNT(*) > :most ORDER BY key

-- name: waiting_sequences
-- Watchers that hold events.
SELECT w.* FROM watchers w WHERE w.held > 0 ORDER BY w.name {binary}

-- name: count_held
-- What is held of a watcher has changed.
UPDATE watchers SET held = held + :held, late = late + :late WHERE id = :id
