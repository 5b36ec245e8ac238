-- What was set aside, and the way back.

-- name: insert_dead_letter
-- Set something aside; what died before keeps the time of its first death.
INSERT INTO dead_letters (watcher_id, seq, dag_id, run_id, stage, category, reason, error, attempts, at, body,
    event_id, first_at, retries)
VALUES (:watcher_id, :seq, :dag_id, :run_id, :stage, :category, :reason, :error, :attempts, :now, :body,
    :event_id, COALESCE((SELECT MIN(d.first_at) FROM dead_letters d
        WHERE d.seq = :seq AND d.dag_id = :dag_id), :now),
    (SELECT COUNT(*) FROM dead_letters d
        WHERE d.seq = :seq AND d.dag_id = :dag_id AND d.state = 'redriven'))

-- name: bury_letters
-- Dead letters for the events that failed for the last time.
INSERT INTO dead_letters (watcher_id, seq, dag_id, run_id, stage, category, reason, error, attempts, at, body,
    event_id, first_at, retries)
SELECT e.watcher_id, e.seq, :dag_id, :run_id, 'run', :category, :reason, CAST(:error AS TEXT), x.attempts + 1,
    :now, e.body, e.id, COALESCE((SELECT MIN(d.first_at) FROM dead_letters d
        WHERE d.seq = e.seq AND d.dag_id = :dag_id), :now),
    (SELECT COUNT(*) FROM dead_letters d
        WHERE d.seq = e.seq AND d.dag_id = :dag_id AND d.state = 'redriven')
FROM entries x JOIN events e ON e.seq = x.seq
WHERE x.claim_id = :claim_id AND x.state = 'claimed' AND x.seq >= :first AND x.seq <= :last

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

-- name: letters_to_retry
-- Open letters of a category whose wait may be over, the longest waiting first.
SELECT d.id, d.retries, COALESCE(d.tried_at, d.at) AS since
FROM dead_letters d LEFT JOIN events e ON e.seq = d.seq
WHERE d.watcher_id = :watcher_id AND d.category = :category AND d.state = 'dead' AND d.retries < :attempts
    AND COALESCE(e.received_at, d.first_at) >= :oldest
    AND COALESCE(d.tried_at, d.at) + :least * CASE WHEN d.retries >= 30 OR :delay * (1 << d.retries) > :cap
        THEN :cap ELSE :delay * (1 << d.retries) END <= :now
ORDER BY since, d.id LIMIT :limit

-- name: letter_to_retry
-- What decides when an open letter is redriven by itself.
SELECT d.id, d.category, d.retries, COALESCE(d.tried_at, d.at) AS since,
    COALESCE(e.received_at, d.first_at) AS born, w.spec, w.max_age
FROM dead_letters d JOIN watchers w ON w.id = d.watcher_id LEFT JOIN events e ON e.seq = d.seq
WHERE d.id = :id AND d.state = 'dead'

-- name: count_retry
-- A letter was tried again in vain.
UPDATE dead_letters SET retries = retries + 1, tried_at = :now WHERE id = :id AND state = 'dead'

-- name: count_letters
-- Open letters since a time, by watcher.
SELECT w.name AS watcher, COUNT(*) AS n FROM dead_letters d JOIN watchers w ON w.id = d.watcher_id
WHERE d.at >= :since AND d.state = 'dead' GROUP BY w.name
