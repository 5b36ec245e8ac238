-- What was, and what is made real once more.

-- name: scan_events
-- Stored events, oldest first, a page at a time.
SELECT e.seq, e.received_at, e.body, w.name AS watcher
FROM events e JOIN watchers w ON w.id = e.watcher_id
WHERE e.seq > :after AND {where} ORDER BY e.seq LIMIT :size

-- name: seqs_of_id
-- Where the events with an id are.
SELECT seq FROM events WHERE {where} ORDER BY seq

-- name: insert_replay
-- A replay begins, or goes on with another cap.
INSERT INTO replays (id, dag_id, cap, created_at) VALUES (:id, :dag_id, :cap, :now)
ON CONFLICT (id) DO UPDATE SET cap = excluded.cap, finished_at = NULL

-- name: get_replay
-- A replay and how far it is.
SELECT r.*,
    (SELECT COUNT(*) FROM replayed p WHERE p.replay = r.id) AS planned,
    (SELECT COUNT(*) FROM replayed p WHERE p.replay = r.id AND p.state = 'made') AS made,
    (SELECT COUNT(*) FROM replayed p WHERE p.replay = r.id AND p.state = 'skipped') AS skipped,
    (SELECT COUNT(*) FROM entries x WHERE x.replay = r.id AND x.state IN ('pending', 'blocked', 'claimed'))
        AS under_way
FROM replays r WHERE r.id = :id

-- name: all_replays
-- Every replay and how far it is, newest first.
SELECT r.*,
    (SELECT COUNT(*) FROM replayed p WHERE p.replay = r.id) AS planned,
    (SELECT COUNT(*) FROM replayed p WHERE p.replay = r.id AND p.state = 'made') AS made,
    (SELECT COUNT(*) FROM replayed p WHERE p.replay = r.id AND p.state = 'skipped') AS skipped,
    (SELECT COUNT(*) FROM entries x WHERE x.replay = r.id AND x.state IN ('pending', 'blocked', 'claimed'))
        AS under_way
FROM replays r ORDER BY r.created_at DESC, r.id

-- name: plan_replay
-- An event is to be delivered again to the Dags that are subscribed; once for each replay.
INSERT INTO replayed (replay, subscription_id, seq, state)
SELECT :replay, s.id, e.seq, 'planned' FROM events e JOIN subscriptions s ON s.watcher_id = e.watcher_id
WHERE e.seq = :seq AND s.active = 1 AND (CAST(:dag_id AS TEXT) IS NULL OR s.dag_id = :dag_id)
ON CONFLICT (replay, subscription_id, seq) DO NOTHING

-- name: unfinished_replays
-- Replays that have something left to do.
SELECT id, cap FROM replays WHERE finished_at IS NULL ORDER BY created_at, id

-- name: replay_under_way
-- How much of a replay its Dags have not settled.
SELECT COUNT(*) AS n FROM entries WHERE replay = :replay AND state IN ('pending', 'blocked', 'claimed')

-- name: planned_events
-- What a replay has left, oldest first.
SELECT subscription_id, seq FROM replayed WHERE replay = :replay AND state = 'planned'
ORDER BY seq, subscription_id LIMIT :limit

-- name: replay_entry
-- Deliver an event again to a Dag that has settled it, or that came later; not to one that will get it anyway.
INSERT INTO entries (subscription_id, seq, claim_id, state, attempts, available_at, replay)
SELECT s.id, e.seq, NULL, 'pending', 0, :now, :replay
FROM subscriptions s JOIN events e ON e.watcher_id = s.watcher_id
WHERE s.id = :subscription_id AND e.seq = :seq AND e.seq <= s.frontier
ON CONFLICT (subscription_id, seq) DO UPDATE SET state = 'pending', claim_id = NULL, attempts = 0,
    available_at = excluded.available_at, replay = excluded.replay
WHERE entries.state = 'done'

-- name: mark_replayed
-- What became of a planned event.
UPDATE replayed SET state = :state
WHERE replay = :replay AND subscription_id = :subscription_id AND seq = :seq

-- name: finish_replay
-- Everything of a replay is settled.
UPDATE replays SET finished_at = :now WHERE id = :id
