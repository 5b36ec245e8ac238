-- What is known.

-- name: health
-- Every watcher with its counters and its source's heartbeat.
SELECT w.name AS watcher, w.asset, w.source, w.logged, w.duplicates, w.filtered, w.dead, w.last_event_at, w.held, w.late,
    r.state, r.owner, r.heartbeat_at, r.lag, r.error
FROM watchers w LEFT JOIN sources r ON r.name = w.source ORDER BY w.name

-- name: purgeable
-- Old events of a watcher that no active Dag still needs.
SELECT e.seq FROM events e JOIN watchers w ON w.id = e.watcher_id
WHERE w.id = :watcher_id AND e.received_at < :before AND e.seq <= w.closed_seq
    AND NOT EXISTS (
        SELECT 1 FROM subscriptions s LEFT JOIN entries x ON x.subscription_id = s.id AND x.seq = e.seq
        WHERE s.watcher_id = w.id AND s.active = 1 AND e.seq > s.start_seq
            AND (x.state IS NULL OR x.state NOT IN ('done', 'dead')))
ORDER BY e.seq LIMIT 1000

-- name: purge_event
-- Forget an event.
DELETE FROM events WHERE seq = :seq

-- name: purge_entry
-- Forget who had an event.
DELETE FROM entries WHERE seq = :seq
    AND subscription_id IN (SELECT id FROM subscriptions WHERE watcher_id = :watcher_id)

-- name: purge_claims
-- Forget settled claims whose events are gone.
DELETE FROM claims WHERE state <> 'active' AND settled_at < :before
    AND NOT EXISTS (SELECT 1 FROM entries x WHERE x.subscription_id = claims.subscription_id
        AND x.seq >= claims.first_seq AND x.seq <= claims.last_seq)

-- name: purge_batches
-- Forget batches whose events are gone.
DELETE FROM batches WHERE closed_at < :before
    AND NOT EXISTS (SELECT 1 FROM events e WHERE e.watcher_id = batches.watcher_id
        AND e.seq >= batches.first_seq AND e.seq <= batches.last_seq)

-- name: purge_announcements
-- Forget old announcements.
DELETE FROM announcements WHERE at < :before

-- name: purge_dedup
-- Forget dedup keys whose window is over.
DELETE FROM dedup WHERE expires_at IS NOT NULL AND expires_at <= :now

-- name: list_events
-- Events with what each Dag made of them; {where} is added by the query.
SELECT * FROM (
    SELECT e.seq, e.id, e.type, e.key, e.body, e.received_at, w.name AS watcher, w.asset, s.dag_id,
        COALESCE(x.attempts, 0) AS attempts, c.run_id,
        CASE WHEN e.seq > w.closed_seq THEN 'open' ELSE COALESCE(x.state, 'pending') END AS state,
        (SELECT MIN(b.id) FROM batches b
            WHERE b.watcher_id = e.watcher_id AND b.first_seq <= e.seq AND b.last_seq >= e.seq) AS batch
    FROM events e JOIN watchers w ON w.id = e.watcher_id
    LEFT JOIN subscriptions s ON s.watcher_id = e.watcher_id AND e.seq > s.start_seq
    LEFT JOIN entries x ON x.subscription_id = s.id AND x.seq = e.seq
    LEFT JOIN claims c ON c.id = x.claim_id) AS found
WHERE {where} ORDER BY seq DESC, dag_id LIMIT :limit

-- name: list_verdicts
-- What was filtered or a duplicate, newest first.
SELECT w.name AS watcher, v.stage, v.verdict, v.reason, v.seq, v.at, v.body
FROM verdicts v JOIN watchers w ON w.id = v.watcher_id
WHERE (:event_id = '' OR v.event_id = :event_id) AND (:watcher = '' OR w.name = :watcher)
ORDER BY v.id DESC LIMIT :limit
