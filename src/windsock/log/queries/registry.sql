-- Who is there, and who reads.

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

-- name: end_lease
-- Whoever holds a lease loses it.
UPDATE leases SET owner = '', epoch = epoch + 1, expires_at = 0 WHERE name = :name

-- name: update_lease
-- The next owner, or the same owner with a new epoch or a later end.
UPDATE leases SET owner = :owner, epoch = :epoch, expires_at = :expires_at WHERE name = :name

-- name: put_watcher
-- Make a watcher known, or bring its definition up to date.
INSERT INTO watchers (
    name, asset, source, spec, batch_size, batch_bytes, batch_within, batch_quiet, batch_leading,
    batch_target, dedupe, dedupe_asset, ordered, ordering, throttle, rate_count, rate_window, priority,
    max_age, max_attempts, retry_delay, history)
VALUES (
    :name, :asset, :source, :spec, :batch_size, :batch_bytes, :batch_within, :batch_quiet, :batch_leading,
    :batch_target, :dedupe, :dedupe_asset, :ordered, :ordering, :throttle, :rate_count, :rate_window,
    :priority, :max_age, :max_attempts, :retry_delay, :history)
ON CONFLICT (name) DO UPDATE SET asset = COALESCE(excluded.asset, watchers.asset),
    source = excluded.source, spec = excluded.spec, batch_size = excluded.batch_size, batch_bytes =
    excluded.batch_bytes, batch_within = excluded.batch_within, batch_quiet = excluded.batch_quiet,
    batch_leading = excluded.batch_leading, batch_target = excluded.batch_target, dedupe =
    excluded.dedupe, dedupe_asset = excluded.dedupe_asset, ordered = excluded.ordered, ordering =
    excluded.ordering, throttle = excluded.throttle, rate_count = excluded.rate_count, rate_window =
    excluded.rate_window, priority = excluded.priority, max_age = excluded.max_age, max_attempts =
    excluded.max_attempts, retry_delay = excluded.retry_delay, history = excluded.history

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
SELECT s.*, w.name AS watcher, w.closed_seq, w.batch_size, w.ordered, w.max_attempts, w.retry_delay,
    w.rate_count, w.rate_window, w.priority
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

