-- What is known.

-- name: health
-- Every watcher with its counters and its source's heartbeat.
SELECT w.name AS watcher, w.asset, w.source, w.logged, w.duplicates, w.filtered, w.dead, w.last_event_at, w.held, w.late,
    r.state, r.owner, r.heartbeat_at, r.lag, r.error
FROM watchers w LEFT JOIN sources r ON r.name = w.source ORDER BY w.name

-- name: list_events
-- Events with what each Dag made of them; {where} is added by the query. Batches follow each other, so the first one
-- that reaches as far as an event has it, or none does; it is looked up for the page alone.
SELECT page.*, (SELECT CASE WHEN b.first_seq <= page.seq THEN b.id END FROM batches b
    WHERE b.watcher_id = page.watcher_id AND b.last_seq >= page.seq ORDER BY b.last_seq LIMIT 1) AS batch
FROM (SELECT * FROM (
    SELECT e.seq, e.id, e.type, e.key, e.body, e.received_at, e.watcher_id, w.name AS watcher, w.asset, s.dag_id,
        COALESCE(x.attempts, 0) AS attempts, c.run_id,
        CASE WHEN e.seq > w.closed_seq THEN 'open' ELSE COALESCE(x.state, 'pending') END AS state
    FROM events e JOIN watchers w ON w.id = e.watcher_id
    LEFT JOIN subscriptions s ON s.watcher_id = e.watcher_id AND e.seq > s.start_seq
    LEFT JOIN entries x ON x.subscription_id = s.id AND x.seq = e.seq
    LEFT JOIN claims c ON c.id = x.claim_id) AS found
    WHERE {where} ORDER BY seq DESC, dag_id LIMIT :limit) AS page
ORDER BY page.seq DESC, page.dag_id

-- name: list_verdicts
-- What was filtered or a duplicate, newest first.
SELECT w.name AS watcher, v.stage, v.verdict, v.reason, v.seq, v.at, v.body
FROM verdicts v JOIN watchers w ON w.id = v.watcher_id
WHERE {where} ORDER BY v.id DESC LIMIT :limit
