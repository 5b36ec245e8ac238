-- What is kept, archived and forgotten.

-- name: unneeded_events
-- Events of closed batches that no active Dag waits for or has in a run, and that no replay is about to deliver.
SELECT e.seq, e.received_at, CASE WHEN :bodies = 1 THEN e.body END AS body
FROM events e JOIN watchers w ON w.id = e.watcher_id
WHERE e.watcher_id = :watcher_id AND e.seq <= w.closed_seq AND {where}
    AND NOT EXISTS (
        SELECT 1 FROM subscriptions s LEFT JOIN entries x ON x.subscription_id = s.id AND x.seq = e.seq
        WHERE s.watcher_id = e.watcher_id AND s.active = 1
            AND CASE WHEN x.state IS NULL THEN e.seq > s.start_seq ELSE x.state NOT IN ('done', 'dead') END)
    AND NOT EXISTS (
        SELECT 1 FROM replays r WHERE r.finished_at IS NULL AND EXISTS (
            SELECT 1 FROM replayed p WHERE p.replay = r.id AND p.seq = e.seq AND p.state = 'planned'
                AND p.subscription_id IN (SELECT id FROM subscriptions WHERE watcher_id = e.watcher_id)))
ORDER BY e.seq LIMIT :size

-- name: first_since
-- The oldest event of a watcher that is young enough.
SELECT seq FROM events WHERE watcher_id = :watcher_id AND received_at >= :before ORDER BY seq LIMIT 1

-- name: beyond_count
-- The newest event of a watcher that is one too many.
SELECT seq FROM events WHERE watcher_id = :watcher_id ORDER BY seq DESC LIMIT 1 OFFSET :count

-- name: beyond_bytes
-- The newest event of a watcher with which it holds too many bytes.
SELECT seq FROM (
    SELECT seq, SUM(LENGTH(body)) OVER (ORDER BY seq DESC) AS total FROM events
    WHERE watcher_id = :watcher_id) AS sized
WHERE total > :bytes ORDER BY seq DESC LIMIT 1

-- name: lock_places
-- Every Dag's place in a watcher's events, held until the end of the transaction: no run takes or settles any.
SELECT s.id FROM subscriptions s WHERE s.watcher_id = :watcher_id ORDER BY s.id {lock_s}

-- name: lock_entries
-- What each Dag made of a stretch of events, held until the end of the transaction.
SELECT s.seq FROM entries s WHERE s.seq >= :first AND s.seq <= :last
    AND s.subscription_id IN (SELECT id FROM subscriptions WHERE watcher_id = :watcher_id) {lock_s}

-- name: purge_event
-- Forget an event.
DELETE FROM events WHERE seq = :seq

-- name: purge_entry
-- Forget who had an event.
DELETE FROM entries WHERE seq = :seq
    AND subscription_id IN (SELECT id FROM subscriptions WHERE watcher_id = :watcher_id)

-- name: purge_restored
-- Forget that an event came out of the archive.
DELETE FROM restored WHERE seq = :seq

-- name: count_forgotten
-- Events are gone for good, and this is why.
INSERT INTO forgotten (watcher_id, purged, erased) VALUES (:watcher_id, :purged, :erased)
ON CONFLICT (watcher_id) DO UPDATE SET purged = forgotten.purged + excluded.purged,
    erased = forgotten.erased + excluded.erased

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

-- name: purge_letters
-- Forget dead letters that were redriven or discarded long ago.
DELETE FROM dead_letters WHERE state <> 'dead' AND settled_at < :before

-- name: purge_dedup
-- Forget dedup keys whose window is over.
DELETE FROM dedup WHERE expires_at IS NOT NULL AND expires_at <= :now

-- name: retained
-- What every watcher holds, in the log and in its archive.
SELECT w.name AS watcher, w.spec,
    (SELECT COUNT(*) FROM events e WHERE e.watcher_id = w.id) AS count,
    (SELECT COALESCE(SUM(LENGTH(e.body)), 0) FROM events e WHERE e.watcher_id = w.id) AS bytes,
    (SELECT MIN(e.received_at) FROM events e WHERE e.watcher_id = w.id) AS oldest_at,
    (SELECT COUNT(*) FROM archives a WHERE a.watcher_id = w.id AND a.state = 'stored') AS files,
    (SELECT CAST(COALESCE(SUM(a.count), 0) AS BIGINT) FROM archives a
        WHERE a.watcher_id = w.id AND a.state = 'stored') AS archived,
    (SELECT CAST(COALESCE(SUM(a.bytes), 0) AS BIGINT) FROM archives a
        WHERE a.watcher_id = w.id AND a.state = 'stored') AS archived_bytes
FROM watchers w ORDER BY w.name

-- name: outcomes_between
-- What each Dag made of a stretch of events.
SELECT x.seq, s.dag_id, x.state, x.attempts, c.run_id
FROM subscriptions s JOIN entries x ON x.subscription_id = s.id LEFT JOIN claims c ON c.id = x.claim_id
WHERE s.watcher_id = :watcher_id AND x.seq >= :first AND x.seq <= :last ORDER BY x.seq, s.dag_id

-- name: note_archive
-- A file is about to be written.
INSERT INTO archives (path, watcher_id, state, first_seq, last_seq, first_at, last_at, count, bytes, sha256, at)
VALUES (:path, :watcher_id, 'writing', :first_seq, :last_seq, :first_at, :last_at, :count, :bytes, :sha256, :at)
ON CONFLICT (path) DO NOTHING

-- name: mark_archive
-- A file is there for good, or on its way out.
UPDATE archives SET state = :state WHERE path = :path

-- name: forget_archive
-- A file is gone.
DELETE FROM archives WHERE path = :path

-- name: loose_archives
-- Files that were being written or removed when their process ended.
SELECT path FROM archives WHERE state <> 'stored' ORDER BY path

-- name: list_archives
-- Files that hold events, oldest first.
SELECT a.path, w.name AS watcher, a.first_seq, a.last_seq, a.first_at, a.last_at, a.count, a.bytes, a.sha256, a.at
FROM archives a JOIN watchers w ON w.id = a.watcher_id
WHERE a.state = 'stored' AND {where} ORDER BY a.first_seq, a.path

-- name: lock_archive
-- One file, held until the end of the transaction.
SELECT path, watcher_id FROM archives WHERE path = :path AND state = 'stored' {lock}

-- name: restore_event
-- An event comes back to its old place.
INSERT INTO events (seq, watcher_id, id, type, key, received_at, body, subject)
SELECT :seq, w.id, CAST(:id AS TEXT), CAST(:type AS TEXT), CAST(:key AS TEXT), :received_at, :body,
    CASE WHEN w.history = 1 THEN CAST(:subject AS TEXT) END
FROM watchers w WHERE w.id = :watcher_id ON CONFLICT (seq) DO NOTHING

-- name: mark_restored
-- An event came back, and may go again without being archived.
INSERT INTO restored (seq, at) VALUES (:seq, :now)

-- name: stay_restored
-- An event that came back before is wanted again.
UPDATE restored SET at = :now WHERE seq = :seq

-- name: restore_entry
-- What a Dag had made of an event that comes back.
INSERT INTO entries (subscription_id, seq, claim_id, state, attempts)
SELECT s.id, :seq, NULL, :state, :attempts FROM subscriptions s
WHERE s.watcher_id = :watcher_id AND s.dag_id = :dag_id AND s.frontier >= :seq
ON CONFLICT (subscription_id, seq) DO NOTHING

-- name: restore_other_entries
-- Dags of which nothing is known have passed an event that comes back.
INSERT INTO entries (subscription_id, seq, claim_id, state)
SELECT s.id, :seq, NULL, 'done' FROM subscriptions s
WHERE s.watcher_id = :watcher_id AND s.start_seq < :seq AND s.frontier >= :seq
ON CONFLICT (subscription_id, seq) DO NOTHING

-- name: stored_letters
-- Dead letters, a page at a time.
SELECT d.id, w.name AS watcher, d.body FROM dead_letters d JOIN watchers w ON w.id = d.watcher_id
WHERE d.id > :after AND (:watcher = '' OR w.name = :watcher) ORDER BY d.id LIMIT :size

-- name: stored_verdicts
-- Remembered verdicts, a page at a time.
SELECT v.id, w.name AS watcher, v.body FROM verdicts v JOIN watchers w ON w.id = v.watcher_id
WHERE v.id > :after AND (:watcher = '' OR w.name = :watcher) ORDER BY v.id LIMIT :size

-- name: events_of_key
-- The events of a watcher with a key, and which of them came back out of an archive.
SELECT e.seq, e.body, r.at AS restored_at FROM events e LEFT JOIN restored r ON r.seq = e.seq
WHERE e.key = :key AND e.watcher_id = :watcher_id ORDER BY e.seq LIMIT :size

-- name: count_of_key
-- What there is of a key in a watcher.
SELECT (SELECT COUNT(*) FROM events WHERE key = :key AND watcher_id = :watcher_id) AS events,
    (SELECT COUNT(*) FROM held WHERE key = :key AND watcher_id = :watcher_id) AS held,
    (SELECT COUNT(*) FROM sequences WHERE key = :key AND watcher_id = :watcher_id) AS sequences

-- name: erase_held
-- Events of a key that wait for their turn.
DELETE FROM held WHERE watcher_id = :watcher_id AND key = :key

-- name: erase_sequence
-- The number that comes next in a key.
DELETE FROM sequences WHERE watcher_id = :watcher_id AND key = :key

-- name: count_derived
-- What was made of the events of a key, and is known by it.
SELECT (SELECT COUNT(*) FROM rule_state WHERE key = :key) AS rule_states,
    (SELECT COUNT(*) FROM view_rows WHERE key = :key) AS view_rows,
    (SELECT COUNT(*) FROM moves WHERE subject = :key) AS moves,
    (SELECT COUNT(*) FROM standings WHERE subject = :key) AS standings,
    (SELECT COUNT(*) FROM sagas WHERE id = :key AND state NOT IN ('running', 'compensating')) AS sagas

-- name: erase_rule_states
-- What rules remember of a key.
DELETE FROM rule_state WHERE key = :key

-- name: erase_view_rows
-- Rows of read models.
DELETE FROM view_rows WHERE key = :key

-- name: erase_saga_steps
-- Steps of sagas that are over.
DELETE FROM saga_steps WHERE id = :key AND EXISTS (SELECT 1 FROM sagas g WHERE g.saga = saga_steps.saga
    AND g.id = saga_steps.id AND g.state NOT IN ('running', 'compensating'))

-- name: erase_sagas
-- Sagas that are over.
DELETE FROM sagas WHERE id = :key AND state NOT IN ('running', 'compensating')

-- name: erase_letter
-- A dead letter.
DELETE FROM dead_letters WHERE id = :id

-- name: erase_verdict
-- A verdict.
DELETE FROM verdicts WHERE id = :id

-- name: pass_nothing
-- A Dag before which nothing is left has passed everything.
UPDATE subscriptions SET frontier = (SELECT w.closed_seq FROM watchers w WHERE w.id = subscriptions.watcher_id)
WHERE watcher_id = :watcher_id
    AND frontier < (SELECT w.closed_seq FROM watchers w WHERE w.id = subscriptions.watcher_id)
    AND NOT EXISTS (SELECT 1 FROM events e JOIN watchers w ON w.id = e.watcher_id
        WHERE e.watcher_id = :watcher_id AND e.seq > subscriptions.frontier AND e.seq <= w.closed_seq)

-- name: put_receipt
-- What was erased so far.
INSERT INTO erasures (id, begun_at, receipt) VALUES (:id, :begun_at, :receipt)
ON CONFLICT (id) DO UPDATE SET receipt = excluded.receipt

-- name: list_receipts
-- Every erasure, newest first.
SELECT receipt FROM erasures ORDER BY begun_at DESC, id
