-- What was set aside, and the way back.

-- name: insert_dead_letter
-- Set something aside; what died before keeps the time of its first death.
INSERT INTO dead_letters (watcher_id, seq, dag_id, run_id, stage, category, reason, error, attempts, at, body,
    event_id, first_at)
VALUES (:watcher_id, :seq, :dag_id, :run_id, :stage, :category, :reason, :error, :attempts, :now, :body,
    :event_id, COALESCE((SELECT MIN(d.first_at) FROM dead_letters d
        WHERE d.seq = :seq AND d.dag_id = :dag_id), :now))

-- name: bury_letters
-- Dead letters for the events that failed for the last time.
INSERT INTO dead_letters (watcher_id, seq, dag_id, run_id, stage, category, reason, error, attempts, at, body,
    event_id, first_at)
SELECT e.watcher_id, e.seq, :dag_id, :run_id, 'run', 'poison', :reason, NULL, x.attempts + 1, :now, e.body,
    e.id, COALESCE((SELECT MIN(d.first_at) FROM dead_letters d
        WHERE d.seq = e.seq AND d.dag_id = :dag_id), :now)
FROM entries x JOIN events e ON e.seq = x.seq WHERE x.claim_id = :claim_id AND x.state = 'claimed'

-- name: list_dead_letters
-- Dead letters, newest first.
SELECT d.*, w.name AS watcher FROM dead_letters d JOIN watchers w ON w.id = d.watcher_id
WHERE {where} ORDER BY d.id DESC LIMIT :limit

-- name: revive_entry
-- A dead event waits for its Dag again, in its old place, as if it had never been tried.
UPDATE entries SET state = 'pending', claim_id = NULL, attempts = 0, available_at = :now, replay = :replay
WHERE seq = :seq AND state = 'dead' AND subscription_id = (
    SELECT s.id FROM subscriptions s JOIN watchers w ON w.id = s.watcher_id
    WHERE w.name = :watcher AND s.dag_id = :dag_id)

-- name: close_letter
-- A dead letter was redriven or discarded.
UPDATE dead_letters SET state = :state, settled_at = :now WHERE id = :id AND state = 'dead'
