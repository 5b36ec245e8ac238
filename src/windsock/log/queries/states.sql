-- What subjects have been through: events by subject, snapshots, state machines.

-- name: subject_events
-- A subject's events, oldest first, a page at a time.
SELECT e.seq, e.received_at, e.body, w.name AS watcher FROM events e JOIN watchers w ON w.id = e.watcher_id
WHERE e.subject = :subject AND e.seq > :after AND e.seq <= :up_to
    AND (CAST(:until AS DOUBLE PRECISION) IS NULL OR e.received_at <= :until)
ORDER BY e.seq LIMIT :size

-- name: unindexed_events
-- Events of a watcher whose subject cannot be looked up.
SELECT seq, body FROM events WHERE watcher_id = :watcher_id AND seq > :after AND subject IS NULL
ORDER BY seq LIMIT :size

-- name: index_subject
-- Let an event be found by its subject.
UPDATE events SET subject = :subject WHERE seq = :seq

-- name: hold_watchers
-- How far watchers are, once no append to them is under way; in the order in which appends lock them.
SELECT name, last_seq FROM watchers WHERE {where} ORDER BY name {binary} {share}

-- name: hold_histories
-- The same for the watchers whose events are found by subject.
SELECT name, last_seq FROM watchers WHERE history = 1 ORDER BY name {binary} {share}

-- name: get_snapshot
-- The latest snapshot that has nothing in it from after a position or a time.
SELECT * FROM snapshots WHERE subject = :subject AND reducer = :reducer AND version = :version
    AND seq <= :up_to AND (CAST(:until AS DOUBLE PRECISION) IS NULL OR last_at <= :until)
ORDER BY seq DESC LIMIT 1

-- name: snapshot_at
-- The snapshot at a position.
SELECT events FROM snapshots
WHERE subject = :subject AND reducer = :reducer AND version = :version AND seq = :seq

-- name: count_subject_events
-- How many events a subject has in a stretch of the log.
SELECT COUNT(*) AS n FROM events WHERE subject = :subject AND seq > :after AND seq <= :up_to

-- name: put_snapshot
-- Keep a snapshot.
INSERT INTO snapshots (subject, reducer, seq, version, events, last_at, state)
VALUES (:subject, :reducer, :seq, :version, :events, :last_at, :state)
ON CONFLICT (subject, reducer, seq) DO UPDATE SET version = excluded.version, events = excluded.events,
    last_at = excluded.last_at, state = excluded.state

-- name: thin_snapshots
-- Only the newest snapshots of a reducer are kept, and none of another version.
DELETE FROM snapshots WHERE subject = :subject AND reducer = :reducer AND (version <> :version OR seq < (
    SELECT MIN(s.seq) FROM (SELECT seq FROM snapshots WHERE subject = :subject AND reducer = :reducer
        AND version = :version ORDER BY seq DESC LIMIT :kept) AS s))

-- name: drop_snapshots
-- Forget the snapshots of a reducer.
DELETE FROM snapshots WHERE subject = :subject AND reducer = :reducer

-- name: forget_snapshots
-- Forget every snapshot of a subject.
DELETE FROM snapshots WHERE subject = :subject

-- name: forget_standings
-- Forget where machines have a subject.
DELETE FROM standings WHERE subject = :subject

-- name: forget_moves
-- Forget how a subject came there.
DELETE FROM moves WHERE subject = :subject

-- name: get_standing
-- Where a machine has a subject.
SELECT * FROM standings WHERE machine = :machine AND subject = :subject

-- name: hold_standing
-- The same, held until the end of the transaction.
SELECT * FROM standings WHERE machine = :machine AND subject = :subject {lock}

-- name: first_standing
-- A subject's first place; loses against another first.
INSERT INTO standings (machine, subject, state, moves, at) VALUES (:machine, :subject, :state, 0, :now)
ON CONFLICT (machine, subject) DO NOTHING

-- name: move_standing
-- A subject is in another state.
UPDATE standings SET state = :state, moves = moves + 1, at = :now WHERE machine = :machine AND subject = :subject

-- name: list_standings
-- Subjects of a machine, by name.
SELECT * FROM standings WHERE machine = :machine AND subject > :after
    AND (CAST(:state AS TEXT) IS NULL OR state = :state)
ORDER BY subject LIMIT :limit

-- name: get_move
-- What a machine made of an event.
SELECT * FROM moves WHERE machine = :machine AND event = :event

-- name: forget_move
-- A refusal gives way to a new decision.
DELETE FROM moves WHERE machine = :machine AND event = :event

-- name: insert_move
-- A machine's decision.
INSERT INTO moves (machine, subject, event, event_id, event_type, seq, delivery, before, after, reason, at)
VALUES (:machine, :subject, :event, :event_id, :event_type, :seq, :delivery, :before, :after, :reason, :at)
ON CONFLICT (machine, event) DO NOTHING

-- name: list_moves
-- Decisions of machines, newest first.
SELECT * FROM moves WHERE {where} ORDER BY id DESC LIMIT :limit
