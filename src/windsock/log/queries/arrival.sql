-- What arrives.

-- name: put_cursor
-- Remember the source's position.
INSERT INTO sources (name, cursor) VALUES (:source, :cursor)
ON CONFLICT (name) DO UPDATE SET cursor = excluded.cursor

-- name: update_watcher
-- What an append changed of its watcher.
UPDATE watchers SET last_seq = :last_seq, closed_seq = :closed_seq, open_first = :open_first,
    open_count = :open_count, open_bytes = :open_bytes, opened_at = :opened_at, last_event_at = :last_event_at,
    logged = logged + :logged, duplicates = duplicates + :duplicates, filtered = filtered + :filtered,
    dead = dead + :dead
WHERE id = :id

-- name: insert_batch
-- A batch is closed.
INSERT INTO batches (watcher_id, first_seq, last_seq, count, bytes, reason, closed_at)
VALUES (:watcher_id, :first_seq, :last_seq, :count, :bytes, :reason, :now)

-- name: ripe_batches
-- Watchers whose open batch has waited long enough, or was opened under a definition that now closes at once.
SELECT * FROM watchers
WHERE open_count > 0 AND (
    (batch_within > 0 AND opened_at + batch_within <= :now)
    OR (batch_quiet > 0 AND last_event_at + batch_quiet <= :now)
    OR (batch_target > 0 AND (opened_at + batch_target <= :now OR NOT EXISTS (
        SELECT 1 FROM subscriptions s WHERE s.watcher_id = watchers.id AND s.active = 1 AND s.paused = 0
            AND (s.woken_at IS NOT NULL OR s.frontier < watchers.closed_seq))))
    OR (batch_within = 0 AND batch_quiet = 0 AND batch_target = 0))
ORDER BY name {binary} {lock}

-- name: busy_places
-- Dags of a watcher that have not taken yet what they were last told of.
SELECT s.id FROM subscriptions s JOIN watchers w ON w.id = s.watcher_id
WHERE w.id = :watcher_id AND s.active = 1 AND s.paused = 0
    AND (s.woken_at IS NOT NULL OR s.frontier < w.closed_seq) LIMIT 1

-- name: close_open_batch
-- Everything that a watcher has may be claimed.
UPDATE watchers SET closed_seq = last_seq, open_first = NULL, open_count = 0, open_bytes = 0, opened_at = NULL
WHERE id = :id

-- name: insert_verdict
-- Why an event went no further.
INSERT INTO verdicts (watcher_id, event_id, stage, verdict, reason, seq, at, body)
VALUES (:watcher_id, :event_id, :stage, :verdict, :reason, :seq, :now, :body)

-- name: forget_verdicts
-- Only the newest verdicts of a watcher are kept.
DELETE FROM verdicts WHERE watcher_id = :watcher_id AND id <= (
    SELECT id FROM verdicts WHERE watcher_id = :watcher_id ORDER BY id DESC LIMIT 1 OFFSET :kept)
