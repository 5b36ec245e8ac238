-- Every statement of the log that is the same on SQLite and PostgreSQL: a name, a sentence, the SQL.
-- {lock} is FOR UPDATE on PostgreSQL and nothing on SQLite, whose write transactions are alone anyway.
-- Rows of several watchers are locked in the byte order of their names ({binary}), here and in sql.py, so that
-- no two transactions wait for each other.

-- name: put_cursor
-- Remember the source's position.
INSERT INTO sources (name, cursor) VALUES (:source, :cursor)
ON CONFLICT (name) DO UPDATE SET cursor = excluded.cursor

-- name: get_cursor
-- The source's position.
SELECT cursor FROM sources WHERE name = :source

-- name: put_heartbeat
-- The reader of a source says how it is.
INSERT INTO sources (name, owner, state, lag, error, heartbeat_at)
VALUES (:source, :owner, :state, :lag, :error, :now)
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, state = excluded.state, lag = excluded.lag,
    error = excluded.error, heartbeat_at = excluded.heartbeat_at

-- name: get_lease
-- A lease, held until the end of the transaction.
SELECT name, owner, epoch, expires_at FROM leases WHERE name = :name {lock}

-- name: all_leases
-- Every lease, held until the end of the transaction.
SELECT name, owner, epoch, expires_at FROM leases ORDER BY name {lock}

-- name: insert_lease
-- The first owner of a lease; loses against another first owner.
INSERT INTO leases (name, owner, epoch, expires_at) VALUES (:name, :owner, 1, :expires_at)
ON CONFLICT (name) DO NOTHING

-- name: update_lease
-- The next owner, or the same owner with a new epoch or a later end.
UPDATE leases SET owner = :owner, epoch = :epoch, expires_at = :expires_at WHERE name = :name

-- name: put_watcher
-- Make a watcher known, or bring its definition up to date.
INSERT INTO watchers (name, asset, source, spec, batch_size, batch_bytes, batch_within, batch_quiet, dedupe,
    ordered, max_attempts, retry_delay)
VALUES (:name, :asset, :source, :spec, :batch_size, :batch_bytes, :batch_within, :batch_quiet, :dedupe,
    :ordered, :max_attempts, :retry_delay)
ON CONFLICT (name) DO UPDATE SET asset = COALESCE(excluded.asset, watchers.asset), source = excluded.source,
    spec = excluded.spec, batch_size = excluded.batch_size, batch_bytes = excluded.batch_bytes,
    batch_within = excluded.batch_within, batch_quiet = excluded.batch_quiet, dedupe = excluded.dedupe,
    ordered = excluded.ordered, max_attempts = excluded.max_attempts, retry_delay = excluded.retry_delay

-- name: get_watcher
-- A watcher by name.
SELECT * FROM watchers WHERE name = :name

-- name: lock_watcher
-- A watcher by name, held until the end of the transaction: appends to one watcher follow each other, so
-- the seq of its events grows in commit order and a reader can trust "everything up to".
SELECT * FROM watchers WHERE name = :name {lock}

-- name: all_watchers
-- Every watcher.
SELECT * FROM watchers ORDER BY name

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
    OR (batch_within = 0 AND batch_quiet = 0))
ORDER BY name {binary} {lock}

-- name: close_open_batch
-- Everything that a watcher has may be claimed.
UPDATE watchers SET closed_seq = last_seq, open_first = NULL, open_count = 0, open_bytes = 0, opened_at = NULL
WHERE id = :id

-- name: insert_dead_letter
-- Set something aside.
INSERT INTO dead_letters (watcher_id, seq, dag_id, run_id, stage, category, reason, error, attempts, at, body)
VALUES (:watcher_id, :seq, :dag_id, :run_id, :stage, :category, :reason, :error, :attempts, :now, :body)

-- name: count_subscriptions
-- How many Dags ever had a place in a watcher's events.
SELECT COUNT(*) AS n FROM subscriptions WHERE watcher_id = :watcher_id

-- name: insert_subscription
-- A Dag's new place; it counts from the moment that the Dag is known to be scheduled on the asset.
INSERT INTO subscriptions (watcher_id, dag_id, active, start_seq, frontier)
VALUES (:watcher_id, :dag_id, 0, :start_seq, :start_seq)
ON CONFLICT (watcher_id, dag_id) DO NOTHING

-- name: activate_subscription
-- The Dag is there; one that was away or paused is woken at once for what waits.
UPDATE subscriptions SET active = 1, paused = :paused, claims = claims + 1, woken_at = NULL, wakes = 0
WHERE watcher_id = :watcher_id AND dag_id = :dag_id AND (active = 0 OR paused <> :paused)

-- name: deactivate_subscription
-- The Dag is gone.
UPDATE subscriptions SET active = 0
WHERE dag_id = :dag_id AND watcher_id = (SELECT id FROM watchers WHERE name = :watcher)

-- name: get_subscription
-- A Dag's place in a watcher's events, held until the end of the transaction.
SELECT s.*, w.name AS watcher, w.closed_seq, w.batch_size, w.ordered, w.max_attempts, w.retry_delay
FROM subscriptions s JOIN watchers w ON w.id = s.watcher_id
WHERE w.name = :watcher AND s.dag_id = :dag_id {lock_s}

-- name: all_subscriptions
-- Every Dag's place, with its counts if they are asked for.
SELECT w.name AS watcher, w.asset, s.dag_id, s.active, s.paused, s.explicit,
    CASE WHEN :counts = 0 THEN 0 ELSE
        (SELECT COUNT(*) FROM events e
            WHERE e.watcher_id = s.watcher_id AND e.seq > s.frontier AND e.seq <= w.closed_seq)
        + (SELECT COUNT(*) FROM entries x
            WHERE x.subscription_id = s.id AND x.state IN ('pending', 'blocked')) END AS pending,
    CASE WHEN :counts = 0 THEN 0 ELSE
        (SELECT COUNT(*) FROM entries x JOIN claims c ON c.id = x.claim_id
            WHERE c.subscription_id = s.id AND c.state = 'active' AND x.state = 'claimed') END AS claimed,
    CASE WHEN :counts = 0 THEN 0 ELSE
        (SELECT COUNT(*) FROM entries x WHERE x.subscription_id = s.id AND x.state = 'dead') END AS dead
FROM subscriptions s JOIN watchers w ON w.id = s.watcher_id
ORDER BY w.name, s.dag_id

-- name: unwanted_sources
-- Sources that Dags had a place in, all of which are gone.
SELECT w.source FROM subscriptions s JOIN watchers w ON w.id = s.watcher_id
GROUP BY w.source HAVING MAX(s.active) = 0

-- name: due_watchers
-- Watchers of which some Dag should be told now if it has something to claim.
SELECT DISTINCT w.name
FROM subscriptions s JOIN watchers w ON w.id = s.watcher_id
WHERE s.active = 1 AND s.paused = 0 AND (s.woken_at IS NULL OR s.wake_at <= :now)
    AND (s.frontier < w.closed_seq OR EXISTS (
        SELECT 1 FROM entries x
        WHERE x.subscription_id = s.id AND x.state IN ('pending', 'blocked') AND x.available_at <= :now))

-- name: due_subscriptions
-- Dags of a watcher that should be told now if they have something to claim.
SELECT s.*, w.name AS watcher, w.closed_seq, w.ordered
FROM subscriptions s JOIN watchers w ON w.id = s.watcher_id
WHERE w.name = :watcher AND s.active = 1 AND s.paused = 0 AND (s.woken_at IS NULL OR s.wake_at <= :now)
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
SELECT x.seq, x.attempts, e.key, e.body FROM entries x JOIN events e ON e.seq = x.seq
WHERE x.subscription_id = :subscription_id AND x.state IN ('pending', 'blocked') AND x.available_at <= :now
    AND x.seq <= :up_to
ORDER BY x.seq LIMIT :limit

-- name: fresh_events
-- Events that no run of the Dag has seen.
SELECT e.seq, 0 AS attempts, e.key, e.body FROM events e
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
-- Dead letters that a cleared run takes up again.
DELETE FROM dead_letters WHERE dag_id = :dag_id AND run_id = :run_id AND seq >= :first AND seq <= :last

-- name: claimed_range
-- The events of a stretch of a claim.
SELECT x.seq, x.attempts, e.key, e.body FROM entries x JOIN events e ON e.seq = x.seq
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
SELECT c.id, c.subscription_id, s.watcher_id, s.dag_id, w.max_attempts, w.retry_delay
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
            AND d.run_id = :run_id AND d.category = 'poison')))

-- name: forget_poison_range
-- The dead letters of the events that a failed run goes on with.
DELETE FROM dead_letters WHERE dag_id = :dag_id AND run_id = :run_id AND category = 'poison'
    AND seq >= :first AND seq <= :last

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
WHERE claim_id = :claim_id AND state = 'claimed' AND attempts + 1 < :max_attempts

-- name: bury_letters
-- Dead letters for the events that failed for the last time.
INSERT INTO dead_letters (watcher_id, seq, dag_id, run_id, stage, category, reason, error, attempts, at, body)
SELECT e.watcher_id, e.seq, :dag_id, :run_id, 'run', 'poison', :reason, NULL, x.attempts + 1, :now, e.body
FROM entries x JOIN events e ON e.seq = x.seq WHERE x.claim_id = :claim_id AND x.state = 'claimed'

-- name: bury_entries
-- The events that failed for the last time.
UPDATE entries SET state = 'dead', attempts = attempts + 1 WHERE claim_id = :claim_id AND state = 'claimed'

-- name: release_entries
-- The run is gone: events come back as they were.
UPDATE entries SET state = 'pending', claim_id = NULL, available_at = 0
WHERE claim_id = :claim_id AND state = 'claimed'

-- name: unblock
-- A key may have become free.
UPDATE entries SET state = 'pending' WHERE subscription_id = :subscription_id AND state = 'blocked'

-- name: get_entry
-- One event of a run.
SELECT x.subscription_id, x.state, x.attempts, e.watcher_id, e.body
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

-- name: dead_letters
-- The newest dead letters.
SELECT d.*, w.name AS watcher FROM dead_letters d JOIN watchers w ON w.id = d.watcher_id
WHERE (:watcher = '' OR w.name = :watcher) ORDER BY d.id DESC LIMIT :limit

-- name: backlog
-- Events of a watcher that some active Dag has not settled: all past the frontier of the Dag that is furthest
-- behind, and before it those that wait or are with a run.
WITH place AS (
    SELECT s.id, s.watcher_id, s.frontier FROM subscriptions s JOIN watchers w ON w.id = s.watcher_id
    WHERE w.name = :watcher AND s.active = 1)
SELECT (SELECT COUNT(*) FROM events e WHERE e.watcher_id = (SELECT MIN(watcher_id) FROM place)
        AND e.seq > (SELECT MIN(frontier) FROM place))
    + (SELECT COUNT(*) FROM (
        SELECT x.seq FROM place p JOIN entries x ON x.subscription_id = p.id
            WHERE x.state IN ('pending', 'blocked') AND x.seq <= (SELECT MIN(frontier) FROM place)
        UNION
        SELECT x.seq FROM place p JOIN claims c ON c.subscription_id = p.id JOIN entries x ON x.claim_id = c.id
            WHERE c.state = 'active' AND x.state = 'claimed'
                AND x.seq <= (SELECT MIN(frontier) FROM place)) AS held) AS n

-- name: health
-- Every watcher with its counters and its source's heartbeat.
SELECT w.name AS watcher, w.asset, w.source, w.logged, w.duplicates, w.filtered, w.dead, w.last_event_at,
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
