-- Whether the log agrees with itself. Each gap_… finds what is wrong by watcher and Dag; each mend_… repairs it.

-- name: totals
-- What there is to compare.
SELECT (SELECT COUNT(*) FROM watchers) AS watchers, (SELECT COUNT(*) FROM events) AS events,
    (SELECT CAST(COALESCE(SUM(a.count), 0) AS BIGINT) FROM archives a WHERE a.state = 'stored') AS archived,
    (SELECT CAST(COALESCE(SUM(f.purged), 0) AS BIGINT) FROM forgotten f) AS purged,
    (SELECT CAST(COALESCE(SUM(f.erased), 0) AS BIGINT) FROM forgotten f) AS erased,
    (SELECT COUNT(*) FROM batches) AS batches, (SELECT COUNT(*) FROM announcements) AS announcements,
    (SELECT COUNT(*) FROM subscriptions) AS subscriptions, (SELECT COUNT(*) FROM claims) AS claims,
    (SELECT COUNT(*) FROM entries) AS deliveries, (SELECT COUNT(*) FROM dead_letters) AS letters,
    (SELECT COUNT(*) FROM held) AS held, (SELECT COUNT(*) FROM replays) AS replays

-- name: gap_logged
-- A watcher counts fewer events than it has had, or its newest event is beyond the end that it knows of.
SELECT t.watcher, NULL AS dag_id, t.stored + t.archived + t.purged + t.erased AS n,
    (SELECT MAX(e.seq) FROM events e WHERE e.watcher_id = w.id) AS first
FROM sums t JOIN watchers w ON w.id = t.watcher_id
WHERE t.logged < t.stored + t.archived + t.purged + t.erased
    OR w.last_seq < (SELECT COALESCE(MAX(e.seq), 0) FROM events e WHERE e.watcher_id = w.id)
ORDER BY t.watcher

-- name: mend_logged
-- Count what there is and was.
UPDATE watchers SET
    logged = (SELECT CASE WHEN t.logged < t.stored + t.archived + t.purged + t.erased
        THEN t.stored + t.archived + t.purged + t.erased ELSE t.logged END
        FROM sums t WHERE t.watcher_id = watchers.id),
    last_seq = CASE WHEN last_seq < (SELECT COALESCE(MAX(e.seq), 0) FROM events e WHERE e.watcher_id = watchers.id)
        THEN (SELECT MAX(e.seq) FROM events e WHERE e.watcher_id = watchers.id) ELSE last_seq END
WHERE logged < (SELECT t.stored + t.archived + t.purged + t.erased FROM sums t WHERE t.watcher_id = watchers.id)
    OR last_seq < (SELECT COALESCE(MAX(e.seq), 0) FROM events e WHERE e.watcher_id = watchers.id)

-- name: gap_missing
-- Events that a watcher logged, and that are neither here nor gone for a reason that is known.
SELECT watcher, NULL AS dag_id, logged - stored - archived - purged - erased - lost AS n, logged AS first
FROM sums WHERE logged > stored + archived + purged + erased + lost ORDER BY watcher

-- name: mend_missing
-- They are written off as lost.
INSERT INTO forgotten (watcher_id, lost)
SELECT watcher_id, logged - stored - archived - purged - erased - lost FROM sums
WHERE logged > stored + archived + purged + erased + lost
ON CONFLICT (watcher_id) DO UPDATE SET lost = forgotten.lost + excluded.lost

-- name: gap_open_batch
-- Events behind the last closed batch that the open batch does not count: it would never close.
SELECT w.name AS watcher, NULL AS dag_id, w.open_count AS n, COALESCE(w.open_first, w.closed_seq) AS first
FROM watchers w
WHERE w.open_count < (SELECT COUNT(*) FROM events e WHERE e.watcher_id = w.id AND e.seq > w.closed_seq)
ORDER BY w.name

-- name: mend_open_batch
-- The open batch has what is stored behind the last closed one.
UPDATE watchers SET
    open_count = (SELECT COUNT(*) FROM events e WHERE e.watcher_id = watchers.id AND e.seq > watchers.closed_seq),
    open_first = (SELECT MIN(e.seq) FROM events e WHERE e.watcher_id = watchers.id AND e.seq > watchers.closed_seq),
    open_bytes = (SELECT COALESCE(SUM(LENGTH(e.body)), 0) FROM events e
        WHERE e.watcher_id = watchers.id AND e.seq > watchers.closed_seq),
    opened_at = (SELECT MIN(e.received_at) FROM events e
        WHERE e.watcher_id = watchers.id AND e.seq > watchers.closed_seq)
WHERE open_count < (SELECT COUNT(*) FROM events e
    WHERE e.watcher_id = watchers.id AND e.seq > watchers.closed_seq)

-- name: gap_overdue_batch
-- Open batches whose time is over, and that nobody closed.
SELECT name AS watcher, NULL AS dag_id, open_count AS n, open_first AS first FROM watchers
WHERE open_count > 0 AND (
    (batch_within > 0 AND opened_at + batch_within + :grace <= :now)
    OR (batch_quiet > 0 AND last_event_at + batch_quiet + :grace <= :now)
    OR (batch_target > 0 AND opened_at + batch_target + :grace <= :now)
    OR (batch_within = 0 AND batch_quiet = 0 AND batch_target = 0 AND opened_at + :grace <= :now))
ORDER BY name

-- name: gap_not_announced
-- Batches that closed a while ago, of which a Dag that waits was never told.
SELECT w.name AS watcher, s.dag_id, COUNT(*) AS n, MIN(b.first_seq) AS first
FROM batches b JOIN watchers w ON w.id = b.watcher_id
JOIN subscriptions s ON s.watcher_id = w.id AND s.active = 1 AND s.paused = 0 AND s.woken_at IS NULL
    AND s.frontier < b.last_seq AND s.start_seq < b.last_seq
WHERE b.announced_at IS NULL AND b.closed_at + :grace + w.throttle <= :now
    AND EXISTS (SELECT 1 FROM events e WHERE e.watcher_id = w.id AND e.seq > s.frontier AND e.seq <= b.last_seq)
GROUP BY w.name, s.dag_id ORDER BY w.name, s.dag_id

-- name: mend_not_announced
-- Nothing holds the next announcement back.
UPDATE watchers SET announced_at = NULL WHERE announced_at > :now

-- name: gap_not_claimed
-- Dags that were told long ago, or again and again, and have claimed nothing since.
SELECT w.name AS watcher, s.dag_id, s.wakes AS n, s.frontier AS first
FROM subscriptions s JOIN watchers w ON w.id = s.watcher_id
WHERE s.active = 1 AND s.paused = 0 AND s.woken_at IS NOT NULL
    AND (s.woken_at + :grace <= :now OR s.woken_at > :now + :grace OR s.wakes >= 4)
    AND (EXISTS (SELECT 1 FROM events e
            WHERE e.watcher_id = w.id AND e.seq > s.frontier AND e.seq <= w.closed_seq)
        OR EXISTS (SELECT 1 FROM entries x JOIN events e ON e.seq = x.seq WHERE x.subscription_id = s.id
            AND x.state IN ('pending', 'blocked') AND x.available_at <= :now))
ORDER BY w.name, s.dag_id

-- name: mend_not_claimed
-- Tell these Dags again at once.
UPDATE subscriptions SET woken_at = NULL, wakes = 0, claims = claims + 1
WHERE active = 1 AND paused = 0 AND woken_at IS NOT NULL
    AND (woken_at + :grace <= :now OR woken_at > :now + :grace OR wakes >= 4)

-- name: gap_waiting
-- Events that have waited too long for an active Dag.
SELECT f.watcher, f.dag_id, COUNT(*) AS n, MIN(f.seq) AS first FROM (
    SELECT w.name AS watcher, s.dag_id, e.seq FROM subscriptions s
        JOIN watchers w ON w.id = s.watcher_id JOIN events e ON e.watcher_id = w.id
        WHERE s.active = 1 AND s.paused = 0 AND e.seq > s.frontier AND e.received_at <= :now - :older
    UNION ALL
    SELECT w.name AS watcher, s.dag_id, x.seq FROM subscriptions s JOIN watchers w ON w.id = s.watcher_id
        JOIN entries x ON x.subscription_id = s.id JOIN events e ON e.seq = x.seq
        WHERE s.active = 1 AND s.paused = 0 AND x.state IN ('pending', 'blocked') AND x.replay IS NULL
            AND x.available_at <= :now AND e.received_at <= :now - :older) AS f
GROUP BY f.watcher, f.dag_id ORDER BY f.watcher, f.dag_id

-- name: gap_lost
-- Events behind a Dag's frontier that it has no row for: it would never get them. What came back from an archive
-- is there for a replay, with a row only where there was one.
SELECT w.name AS watcher, s.dag_id, COUNT(*) AS n, MIN(e.seq) AS first
FROM subscriptions s JOIN watchers w ON w.id = s.watcher_id JOIN events e ON e.watcher_id = w.id
    AND e.seq > s.start_seq AND e.seq <= s.frontier
WHERE NOT EXISTS (SELECT 1 FROM entries x WHERE x.subscription_id = s.id AND x.seq = e.seq)
    AND NOT EXISTS (SELECT 1 FROM restored r WHERE r.seq = e.seq)
GROUP BY w.name, s.dag_id ORDER BY w.name, s.dag_id

-- name: mend_lost
-- They wait for the Dag again.
INSERT INTO entries (subscription_id, seq, claim_id, state)
SELECT s.id, e.seq, NULL, 'pending'
FROM subscriptions s JOIN events e ON e.watcher_id = s.watcher_id AND e.seq > s.start_seq AND e.seq <= s.frontier
WHERE NOT EXISTS (SELECT 1 FROM entries x WHERE x.subscription_id = s.id AND x.seq = e.seq)
    AND NOT EXISTS (SELECT 1 FROM restored r WHERE r.seq = e.seq)

-- name: gap_ahead
-- Rows beyond a Dag's frontier: the next claim would stumble over them.
SELECT w.name AS watcher, s.dag_id, COUNT(*) AS n, MIN(x.seq) AS first
FROM entries x JOIN subscriptions s ON s.id = x.subscription_id JOIN watchers w ON w.id = s.watcher_id
WHERE x.seq > s.frontier GROUP BY w.name, s.dag_id ORDER BY w.name, s.dag_id

-- name: mend_ahead
-- The frontier is at the last row; what lies between becomes a row by the repair of lost events.
UPDATE subscriptions SET frontier = (SELECT MAX(x.seq) FROM entries x WHERE x.subscription_id = subscriptions.id)
WHERE frontier < (SELECT COALESCE(MAX(x.seq), 0) FROM entries x WHERE x.subscription_id = subscriptions.id)

-- name: gap_no_claim
-- Events that are with a run of which no claim is under way.
SELECT w.name AS watcher, s.dag_id, COUNT(*) AS n, MIN(x.seq) AS first
FROM entries x JOIN subscriptions s ON s.id = x.subscription_id JOIN watchers w ON w.id = s.watcher_id
LEFT JOIN claims c ON c.id = x.claim_id
WHERE x.state = 'claimed' AND (c.id IS NULL OR c.state <> 'active')
GROUP BY w.name, s.dag_id ORDER BY w.name, s.dag_id

-- name: mend_no_claim
-- They wait for the Dag again, with no attempt counted.
UPDATE entries SET state = 'pending', claim_id = NULL, available_at = 0
WHERE state = 'claimed' AND NOT EXISTS (SELECT 1 FROM claims c WHERE c.id = entries.claim_id AND c.state = 'active')

-- name: gap_no_event
-- Deliveries under way of events that are not stored any more.
SELECT w.name AS watcher, s.dag_id, COUNT(*) AS n, MIN(x.seq) AS first
FROM entries x JOIN subscriptions s ON s.id = x.subscription_id JOIN watchers w ON w.id = s.watcher_id
WHERE x.state IN ('pending', 'blocked', 'claimed') AND NOT EXISTS (SELECT 1 FROM events e WHERE e.seq = x.seq)
GROUP BY w.name, s.dag_id ORDER BY w.name, s.dag_id

-- name: mend_no_event
-- Nothing is left to deliver.
DELETE FROM entries WHERE state IN ('pending', 'blocked', 'claimed')
    AND NOT EXISTS (SELECT 1 FROM events e WHERE e.seq = entries.seq)

-- name: gap_dead_count
-- A watcher counts fewer dead letters than it has.
SELECT w.name AS watcher, NULL AS dag_id, CAST(COUNT(d.id) AS INTEGER) AS n, MIN(d.id) AS first
FROM watchers w JOIN dead_letters d ON d.watcher_id = w.id
GROUP BY w.id, w.name, w.dead HAVING COUNT(d.id) > w.dead ORDER BY w.name

-- name: mend_dead_count
-- Count the letters.
UPDATE watchers SET dead = (SELECT COUNT(*) FROM dead_letters d WHERE d.watcher_id = watchers.id)
WHERE dead < (SELECT COUNT(*) FROM dead_letters d WHERE d.watcher_id = watchers.id)

-- name: gap_letter_open
-- Open letters of events that their Dag has again, or has done.
SELECT w.name AS watcher, d.dag_id, COUNT(*) AS n, MIN(d.id) AS first
FROM dead_letters d JOIN watchers w ON w.id = d.watcher_id
JOIN subscriptions s ON s.watcher_id = w.id AND s.dag_id = d.dag_id
JOIN entries x ON x.subscription_id = s.id AND x.seq = d.seq
WHERE d.state = 'dead' AND x.state <> 'dead' GROUP BY w.name, d.dag_id ORDER BY w.name, d.dag_id

-- name: mend_letter_open
-- The letter is closed: its event went on.
UPDATE dead_letters SET state = 'redriven', settled_at = :now
WHERE state = 'dead' AND EXISTS (
    SELECT 1 FROM subscriptions s JOIN entries x ON x.subscription_id = s.id
    WHERE s.watcher_id = dead_letters.watcher_id AND s.dag_id = dead_letters.dag_id
        AND x.seq = dead_letters.seq AND x.state <> 'dead')

-- name: gap_no_letter
-- Dead events of the last day that no letter tells of; the letters of older ones may have been closed and purged.
SELECT w.name AS watcher, s.dag_id, COUNT(*) AS n, MIN(x.seq) AS first
FROM entries x JOIN subscriptions s ON s.id = x.subscription_id JOIN watchers w ON w.id = s.watcher_id
JOIN events e ON e.seq = x.seq
WHERE x.state = 'dead' AND e.received_at > :now - 86400 AND NOT EXISTS (
    SELECT 1 FROM dead_letters d WHERE d.seq = x.seq AND d.dag_id = s.dag_id)
GROUP BY w.name, s.dag_id ORDER BY w.name, s.dag_id

-- name: mend_no_letter
-- A letter for each of them, so that it can be found and redriven.
INSERT INTO dead_letters (watcher_id, seq, dag_id, run_id, stage, category, reason, error, attempts, at, body,
    event_id, first_at)
SELECT e.watcher_id, e.seq, s.dag_id, c.run_id, 'run', 'poison', 'its letter was missing: made by reconcile', NULL,
    x.attempts, :now, e.body, e.id, :now
FROM entries x JOIN subscriptions s ON s.id = x.subscription_id JOIN events e ON e.seq = x.seq
LEFT JOIN claims c ON c.id = x.claim_id
WHERE x.state = 'dead' AND e.received_at > :now - 86400 AND NOT EXISTS (
    SELECT 1 FROM dead_letters d WHERE d.seq = x.seq AND d.dag_id = s.dag_id)

-- name: gap_held_count
-- A watcher counts another number of held events than it holds.
SELECT w.name AS watcher, NULL AS dag_id, w.held AS n, w.id AS first FROM watchers w
WHERE w.held <> (SELECT COUNT(*) FROM held h WHERE h.watcher_id = w.id) ORDER BY w.name

-- name: mend_held_count
-- Count what is held.
UPDATE watchers SET held = (SELECT COUNT(*) FROM held h WHERE h.watcher_id = watchers.id)
WHERE held <> (SELECT COUNT(*) FROM held h WHERE h.watcher_id = watchers.id)

-- name: gap_held
-- Keys with held events whose turn has come, or of which nobody knows whose turn it is.
SELECT w.name AS watcher, NULL AS dag_id, COUNT(*) AS n, h.key AS first
FROM held h JOIN watchers w ON w.id = h.watcher_id
LEFT JOIN sequences q ON q.watcher_id = h.watcher_id AND q.key = h.key
WHERE q.key IS NULL OR h.number <= q.number GROUP BY w.name, h.key ORDER BY w.name, h.key

-- name: first_held
-- The first held event of a key.
SELECT w.id AS watcher_id, h.number, h.body, q.number AS next_number
FROM held h JOIN watchers w ON w.id = h.watcher_id
LEFT JOIN sequences q ON q.watcher_id = h.watcher_id AND q.key = h.key
WHERE w.name = :watcher AND h.key = :key ORDER BY h.number LIMIT 1

-- name: gap_replay
-- Replays that wait for Dags that are gone, or that are over and not known to be.
SELECT NULL AS watcher, r.dag_id, COUNT(p.seq) AS n, r.id AS first
FROM replays r LEFT JOIN replayed p ON p.replay = r.id AND p.state = 'planned'
WHERE r.finished_at IS NULL AND r.created_at + :grace <= :now AND NOT EXISTS (
    SELECT 1 FROM entries x JOIN subscriptions s ON s.id = x.subscription_id
    WHERE x.replay = r.id AND s.active = 1 AND x.state IN ('pending', 'blocked', 'claimed'))
GROUP BY r.id, r.dag_id ORDER BY r.id

-- name: mend_replay
-- What waits of a replay for a Dag that is gone is let go.
UPDATE entries SET state = 'done', claim_id = NULL WHERE state IN ('pending', 'blocked')
    AND replay IN (SELECT id FROM replays WHERE finished_at IS NULL)
    AND subscription_id IN (SELECT id FROM subscriptions WHERE active = 0)

-- name: mend_replay_plan
-- What is planned for a Dag that is gone is left out.
UPDATE replayed SET state = 'skipped' WHERE state = 'planned'
    AND replay IN (SELECT id FROM replays WHERE finished_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM subscriptions s WHERE s.id = replayed.subscription_id AND s.active = 1)
