-- Who is told, and who has it.

-- name: due_watchers
-- Watchers of which some Dag should be told now if it has something to claim.
SELECT DISTINCT w.name
FROM subscriptions s JOIN watchers w ON w.id = s.watcher_id
WHERE s.active = 1 AND s.paused = 0 AND (s.woken_at IS NULL OR s.wake_at <= :now)
    AND (w.throttle = 0 OR w.announced_at IS NULL OR w.announced_at + w.throttle <= :now)
    AND (w.rate_count IS NULL OR s.rate_at IS NULL OR s.rate_at + w.rate_window <= :now
        OR s.rate_used < w.rate_count)
    AND (s.frontier < w.closed_seq OR EXISTS (
        SELECT 1 FROM entries x
        WHERE x.subscription_id = s.id AND x.state IN ('pending', 'blocked') AND x.available_at <= :now))

-- name: due_subscriptions
-- Dags of a watcher that should be told now if they have something to claim.
SELECT s.*, w.name AS watcher, w.closed_seq, w.ordered
FROM subscriptions s JOIN watchers w ON w.id = s.watcher_id
WHERE w.name = :watcher AND s.active = 1 AND s.paused = 0 AND (s.woken_at IS NULL OR s.wake_at <= :now)
    AND (w.throttle = 0 OR w.announced_at IS NULL OR w.announced_at + w.throttle <= :now)
    AND (w.rate_count IS NULL OR s.rate_at IS NULL OR s.rate_at + w.rate_window <= :now
        OR s.rate_used < w.rate_count)
    AND (s.frontier < w.closed_seq OR EXISTS (
        SELECT 1 FROM entries x
        WHERE x.subscription_id = s.id AND x.state IN ('pending', 'blocked') AND x.available_at <= :now))
ORDER BY s.id

-- name: count_claimable
-- How much a Dag could claim now.
SELECT COUNT(*) AS n FROM (
    SELECT e.key FROM events e
        WHERE e.watcher_id = :watcher_id AND e.seq > :frontier AND e.seq <= :closed_seq
    UNION ALL
    SELECT e.key FROM entries x JOIN events e ON e.seq = x.seq
        WHERE x.subscription_id = :id AND x.state IN ('pending', 'blocked') AND x.available_at <= :now) AS offered
WHERE :ordered = 0 OR offered.key IS NULL OR offered.key NOT IN (
    SELECT e.key FROM entries x JOIN events e ON e.seq = x.seq
    WHERE x.subscription_id = :id AND e.key IS NOT NULL
        AND (x.state = 'claimed' OR (x.state = 'pending' AND x.available_at > :now)))

-- name: insert_announcement
-- Airflow has committed an asset event.
INSERT INTO announcements (id, watcher_id, first_seq, up_to, count, at)
SELECT :id, id, :first_seq, :up_to, :count, :now FROM watchers WHERE name = :watcher
ON CONFLICT (id) DO UPDATE SET at = excluded.at

-- name: mark_batches_announced
-- The batches that an announcement covers.
UPDATE batches SET announced_at = :now
WHERE announced_at IS NULL AND last_seq <= :up_to
    AND watcher_id = (SELECT id FROM watchers WHERE name = :watcher)

-- name: wake_subscription
-- A Dag was told; it is reminded at wake_at unless it has claimed since the announcement became due.
UPDATE subscriptions SET woken_at = :now, wakes = wakes + 1,
    wake_at = :now + CASE WHEN wakes >= 7 THEN :max_delay ELSE :delay * (1 << wakes) END
WHERE dag_id = :dag_id AND claims = :claims AND active = 1 AND (woken_at IS NULL OR wake_at <= :now)
    AND watcher_id = (SELECT id FROM watchers WHERE name = :watcher)

-- name: mark_announced
-- When a watcher was announced last.
UPDATE watchers SET announced_at = :now WHERE name = :watcher

-- name: use_rate
-- A run took events of a Dag's allowance, in a new window if the last one is over.
UPDATE subscriptions SET
    rate_used = CASE WHEN rate_at IS NULL OR rate_at + :window <= :now THEN :n ELSE rate_used + :n END,
    rate_at = CASE WHEN rate_at IS NULL OR rate_at + :window <= :now THEN :now ELSE rate_at END
WHERE id = :subscription_id

-- name: aging_places
-- Dags whose events expire, and the time before which they have.
SELECT s.id, s.dag_id, s.frontier, w.id AS watcher_id, w.name AS watcher, w.closed_seq, :now - w.max_age AS before
FROM subscriptions s JOIN watchers w ON w.id = s.watcher_id
WHERE s.active = 1 AND w.max_age IS NOT NULL ORDER BY w.name {binary}, s.id

-- name: last_expired
-- The newest event that no run has seen and that has waited too long.
SELECT MAX(seq) AS seq FROM events
WHERE watcher_id = :watcher_id AND seq > :frontier AND seq <= :closed_seq AND received_at < :before

-- name: expire_fresh
-- Give a subscription its own row for events that it will not see.
INSERT INTO entries (subscription_id, seq, claim_id, state)
SELECT :subscription_id, e.seq, NULL, 'pending' FROM events e
WHERE e.watcher_id = :watcher_id AND e.seq > :frontier AND e.seq <= :up_to

-- name: expired_letters
-- Dead letters for what has waited too long.
INSERT INTO dead_letters (watcher_id, seq, dag_id, run_id, stage, category, reason, error, attempts, at, body,
    event_id, first_at)
SELECT e.watcher_id, e.seq, :dag_id, NULL, 'claim', 'expired', :reason, NULL, x.attempts, :now, e.body, e.id, :now
FROM entries x JOIN events e ON e.seq = x.seq
WHERE x.subscription_id = :subscription_id AND x.state IN ('pending', 'blocked') AND x.replay IS NULL
    AND e.received_at < :before

-- name: expire_entries
-- Events that have waited too long.
UPDATE entries SET state = 'dead' WHERE subscription_id = :subscription_id AND state IN ('pending', 'blocked')
    AND replay IS NULL AND seq IN (SELECT e.seq FROM entries x JOIN events e ON e.seq = x.seq
        WHERE x.subscription_id = :subscription_id AND x.state IN ('pending', 'blocked')
            AND e.received_at < :before)

-- name: move_frontier
-- A subscription has passed events without a claim.
UPDATE subscriptions SET frontier = :frontier WHERE id = :subscription_id

-- name: get_claim
-- What a run has of a subscription.
SELECT * FROM claims WHERE subscription_id = :subscription_id AND run_id = :run_id

-- name: insert_claim
-- A run takes events.
INSERT INTO claims (subscription_id, run_id, state, implicit, ranges, first_seq, last_seq, claimed_at)
VALUES (:subscription_id, :run_id, 'active', :implicit, :ranges, :first_seq, :last_seq, :now)
RETURNING id

-- name: reopen_claim
-- A run that was settled is running again.
UPDATE claims SET state = 'active', implicit = 0, settled_at = NULL WHERE id = :claim_id

-- name: resume_claim
-- A run that failed goes on.
UPDATE claims SET state = 'active', settled_at = NULL WHERE id = :claim_id

-- name: detach_entries
-- Events that were set aside out of a claim stay aside when the claim goes.
UPDATE entries SET claim_id = NULL WHERE claim_id = :claim_id

-- name: delete_claim
-- A claim is taken back as if it had never been.
DELETE FROM claims WHERE id = :claim_id

-- name: waiting_entries
-- Events that came back, or whose key was busy, and may be claimed now.
SELECT x.seq, x.attempts, x.replay, e.key, e.body FROM entries x JOIN events e ON e.seq = x.seq
WHERE x.subscription_id = :subscription_id AND x.state IN ('pending', 'blocked') AND x.available_at <= :now
    AND x.seq <= :up_to
ORDER BY x.seq LIMIT :limit

-- name: fresh_events
-- Events that no run of the Dag has seen.
SELECT e.seq, 0 AS attempts, NULL AS replay, e.key, e.body FROM events e
WHERE e.watcher_id = :watcher_id AND e.seq > :after AND e.seq <= :up_to
ORDER BY e.seq LIMIT :limit

-- name: busy_keys
-- Keys with an earlier event that is in another run or waits for its retry.
SELECT e.key FROM claims c JOIN entries x ON x.claim_id = c.id JOIN events e ON e.seq = x.seq
WHERE c.subscription_id = :subscription_id AND c.state = 'active' AND x.state = 'claimed' AND e.key IS NOT NULL
UNION
SELECT e.key FROM entries x JOIN events e ON e.seq = x.seq
WHERE x.subscription_id = :subscription_id AND x.state = 'pending' AND x.available_at > :now
    AND e.key IS NOT NULL

-- name: insert_entries
-- Give a subscription its own row for a stretch of fresh events.
INSERT INTO entries (subscription_id, seq, claim_id, state)
SELECT :subscription_id, e.seq, :claim_id, 'claimed' FROM events e
WHERE e.watcher_id = :watcher_id AND e.seq > :after AND e.seq <= :up_to

-- name: block_entry
-- An event that waits for its key.
UPDATE entries SET state = 'blocked', claim_id = NULL WHERE subscription_id = :subscription_id AND seq = :seq

-- name: take_entry
-- An event that came back is claimed again.
UPDATE entries SET state = 'claimed', claim_id = :claim_id WHERE subscription_id = :subscription_id AND seq = :seq

-- name: retake_range
-- The same run claims again: its own events, and those that nobody else has taken since.
UPDATE entries SET state = 'claimed', claim_id = :claim_id
WHERE subscription_id = :subscription_id AND seq >= :first AND seq <= :last
    AND (claim_id = :claim_id OR claim_id IS NULL OR state IN ('pending', 'blocked', 'dead'))

-- name: forget_dead_range
-- Dead letters that a cleared run takes up again; that of an event which has left the log stays.
DELETE FROM dead_letters WHERE dag_id = :dag_id AND run_id = :run_id AND seq >= :first AND seq <= :last
    AND state = 'dead' AND EXISTS (SELECT 1 FROM entries x
        WHERE x.subscription_id = :subscription_id AND x.seq = dead_letters.seq)

-- name: claimed_range
-- The events of a stretch of a claim.
SELECT x.seq, x.attempts, x.replay, e.key, e.body FROM entries x JOIN events e ON e.seq = x.seq
WHERE x.subscription_id = :subscription_id AND x.seq >= :first AND x.seq <= :last ORDER BY x.seq

-- name: advance_subscription
-- A claim was made: the Dag is awake.
UPDATE subscriptions SET frontier = :frontier, claims = claims + 1, woken_at = NULL, wakes = 0
WHERE id = :subscription_id

-- name: mark_explicit
-- The Dag claims for itself from now on.
UPDATE subscriptions SET explicit = 1 WHERE id = :subscription_id AND explicit = 0

-- name: run_claims
-- The unsettled claims of a run, with how its events are to be retried.
SELECT c.id, c.subscription_id, c.ranges, s.watcher_id, s.dag_id, w.max_attempts, w.retry_delay
FROM claims c JOIN subscriptions s ON s.id = c.subscription_id JOIN watchers w ON w.id = s.watcher_id
WHERE s.dag_id = :dag_id AND c.run_id = :run_id AND c.state = 'active'
ORDER BY w.name {binary} {lock_s}

-- name: ended_claims
-- The claims of a run that failed or were given back.
SELECT c.id, c.subscription_id, c.ranges
FROM claims c JOIN subscriptions s ON s.id = c.subscription_id JOIN watchers w ON w.id = s.watcher_id
WHERE s.dag_id = :dag_id AND c.run_id = :run_id AND c.state IN ('failed', 'released')
ORDER BY w.name {binary} {lock_s}

-- name: resume_range
-- A failed run goes on with what nobody else has taken since, and what was buried with it.
UPDATE entries SET state = 'claimed', claim_id = :claim_id
WHERE subscription_id = :subscription_id AND seq >= :first AND seq <= :last
    AND (state IN ('pending', 'blocked') OR (state = 'dead' AND claim_id = :claim_id AND EXISTS (
        SELECT 1 FROM dead_letters d WHERE d.seq = entries.seq AND d.dag_id = :dag_id
            AND d.run_id = :run_id AND d.stage = 'run' AND d.state = 'dead')))

-- name: forget_buried_range
-- The dead letters of the events that a failed run goes on with.
DELETE FROM dead_letters WHERE dag_id = :dag_id AND run_id = :run_id AND stage = 'run'
    AND seq >= :first AND seq <= :last AND state = 'dead'

-- name: settle_claim
-- The run ended.
UPDATE claims SET state = :state, settled_at = :now WHERE id = :claim_id

-- name: finish_entries
-- The run succeeded.
UPDATE entries SET state = 'done' WHERE claim_id = :claim_id AND state = 'claimed'

-- name: return_entries
-- The run failed: events come back after a pause that doubles with each attempt.
UPDATE entries SET state = 'pending', attempts = attempts + 1, claim_id = NULL,
    available_at = :now + CASE WHEN attempts >= 12 OR :retry_delay * (1 << attempts) > :max_delay
        THEN :max_delay ELSE :retry_delay * (1 << attempts) END
WHERE claim_id = :claim_id AND state = 'claimed' AND seq >= :first AND seq <= :last
    AND attempts + 1 < :max_attempts

-- name: bury_entries
-- The events that failed for the last time.
UPDATE entries SET state = 'dead', attempts = attempts + 1
WHERE claim_id = :claim_id AND state = 'claimed' AND seq >= :first AND seq <= :last

-- name: release_entries
-- The run is gone: events come back as they were.
UPDATE entries SET state = 'pending', claim_id = NULL, available_at = 0
WHERE claim_id = :claim_id AND state = 'claimed'

-- name: unblock
-- A key may have become free.
UPDATE entries SET state = 'pending' WHERE subscription_id = :subscription_id AND state = 'blocked'

-- name: get_entry
-- One event of a run.
SELECT x.subscription_id, x.state, x.attempts, e.watcher_id, e.id AS event_id, e.body
FROM entries x JOIN subscriptions s ON s.id = x.subscription_id JOIN events e ON e.seq = x.seq
JOIN claims c ON c.id = x.claim_id
WHERE s.dag_id = :dag_id AND c.run_id = :run_id AND x.seq = :seq {lock_s}

-- name: bury_entry
-- One event is set aside.
UPDATE entries SET state = 'dead' WHERE subscription_id = :subscription_id AND seq = :seq

-- name: count_dead
-- A watcher's events went to the dead letters.
UPDATE watchers SET dead = dead + :n WHERE id = :watcher_id

-- name: active_runs
-- Every run that has events and is not settled.
SELECT DISTINCT s.dag_id, c.run_id FROM claims c JOIN subscriptions s ON s.id = c.subscription_id
WHERE c.state = 'active' ORDER BY s.dag_id, c.run_id

-- name: failed_runs
-- Every run whose events went back.
SELECT DISTINCT s.dag_id, c.run_id FROM claims c JOIN subscriptions s ON s.id = c.subscription_id
WHERE c.state IN ('failed', 'released') AND c.settled_at >= :since ORDER BY s.dag_id, c.run_id
