-- Where an event has been, and where it stands.

-- name: trace_events
-- The stored events with an id, with their batch.
SELECT * FROM (
    SELECT e.seq, e.id, e.key, e.body, 0 AS attempts, e.received_at, e.watcher_id, w.name AS watcher, w.asset,
        w.source, w.closed_seq, b.id AS batch, b.reason AS batch_reason, b.count AS batch_count,
        b.closed_at AS batch_closed_at, b.announced_at
    FROM events e JOIN watchers w ON w.id = e.watcher_id
    LEFT JOIN batches b ON b.first_seq <= e.seq AND b.id = (
        SELECT a.id FROM batches a WHERE a.watcher_id = e.watcher_id AND a.last_seq >= e.seq
        ORDER BY a.last_seq LIMIT 1)) AS found
WHERE {where} ORDER BY seq

-- name: trace_places
-- What each Dag made of an event. What stands before it is only counted while it waits. The plus keeps SQLite
-- on the index of the few claims that are active.
SELECT s.dag_id, s.active, s.paused, s.woken_at, s.wake_at, COALESCE(x.attempts, 0) AS attempts,
    COALESCE(x.available_at, 0) AS available_at, x.replay, COALESCE(x.state, 'pending') AS state,
    c.run_id, c.state AS run_state, c.claimed_at, c.settled_at,
    CASE WHEN COALESCE(x.state, 'pending') NOT IN ('pending', 'blocked') THEN 0 ELSE
        (SELECT COUNT(*) FROM (SELECT 1 FROM events f
            WHERE f.watcher_id = s.watcher_id AND f.seq > s.frontier AND f.seq < :seq LIMIT 10000) AS fresh)
        + (SELECT COUNT(*) FROM (SELECT 1 FROM entries y WHERE y.subscription_id = s.id
            AND y.state IN ('pending', 'blocked') AND y.seq < :seq LIMIT 10000) AS returned) END AS ahead,
    CASE WHEN COALESCE(x.state, 'pending') NOT IN ('pending', 'blocked') THEN NULL ELSE
        (SELECT MIN(d.run_id) FROM claims d JOIN entries z ON z.claim_id = d.id JOIN events g ON g.seq = z.seq
        WHERE +d.subscription_id = s.id AND d.state = 'active' AND z.state = 'claimed' AND g.seq <> :seq
            AND g.key = CAST(:key AS TEXT)) END AS key_run_id
FROM subscriptions s
LEFT JOIN entries x ON x.subscription_id = s.id AND x.seq = :seq
LEFT JOIN claims c ON c.id = x.claim_id
WHERE s.watcher_id = :watcher_id AND (:seq > s.start_seq OR x.seq IS NOT NULL) ORDER BY s.dag_id

-- name: claims_around
-- The runs of a Dag whose events stand on both sides of one, or are it.
SELECT w.name AS watcher, c.run_id, c.state, c.claimed_at, c.settled_at, c.ranges
FROM claims c JOIN subscriptions s ON s.id = c.subscription_id JOIN watchers w ON w.id = s.watcher_id
WHERE s.watcher_id = :watcher_id AND s.dag_id = :dag_id AND c.first_seq <= :seq AND c.last_seq >= :seq
ORDER BY c.id

-- name: list_held
-- Events that wait for their turn.
SELECT w.name AS watcher, h.number, n.number AS next_number, h.held_at, h.body
FROM held h JOIN watchers w ON w.id = h.watcher_id
JOIN sequences n ON n.watcher_id = h.watcher_id AND n.key = h.key
WHERE {where} ORDER BY w.name, h.key, h.number

-- name: claims_between
-- The runs of a Dag that took events in a time.
SELECT w.name AS watcher, c.run_id, c.state, c.claimed_at, c.settled_at, c.ranges
FROM claims c JOIN subscriptions s ON s.id = c.subscription_id JOIN watchers w ON w.id = s.watcher_id
WHERE s.dag_id = :dag_id AND c.claimed_at >= :since AND c.claimed_at < :until ORDER BY c.claimed_at, w.name
