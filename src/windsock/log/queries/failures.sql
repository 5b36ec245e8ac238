-- Why runs failed.

-- name: note_failure
-- What a task of a Dag with a place in some watcher's events failed with.
INSERT INTO failures (dag_id, run_id, task, category, error, seqs, at)
SELECT :dag_id, :run_id, :task, CAST(:category AS TEXT), :error, :seqs, :now
WHERE EXISTS (SELECT 1 FROM subscriptions s WHERE s.dag_id = :dag_id)
ON CONFLICT (dag_id, run_id, task) DO UPDATE SET
    category = excluded.category, error = excluded.error, seqs = excluded.seqs, at = excluded.at

-- name: run_failures
-- What the tasks of a run failed with, the first first.
SELECT * FROM failures WHERE dag_id = :dag_id AND run_id = :run_id ORDER BY at, task

-- name: forget_failures
-- A run is settled; what was never settled is forgotten, too.
DELETE FROM failures WHERE (dag_id = :dag_id AND run_id = :run_id) OR at < :before
