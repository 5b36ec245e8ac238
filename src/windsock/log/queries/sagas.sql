-- How far sagas are.

-- name: begin_saga
-- A saga that is new.
INSERT INTO sagas (saga, id, state, epoch, delivery, data, error, started_at, updated_at)
VALUES (:saga, :id, 'running', 0, :delivery, :data, NULL, :now, :now)
ON CONFLICT (saga, id) DO NOTHING

-- name: hold_saga
-- A saga, held until the end of the transaction.
SELECT * FROM sagas WHERE saga = :saga AND id = :id {lock}

-- name: take_saga
-- Somebody takes the saga up.
UPDATE sagas SET epoch = epoch + 1 WHERE saga = :saga AND id = :id

-- name: restart_saga
-- A compensated saga begins anew.
UPDATE sagas SET state = 'running', delivery = :delivery, data = :data, error = NULL, started_at = :now,
    updated_at = :now
WHERE saga = :saga AND id = :id

-- name: forget_steps
-- Nothing of a saga was done.
DELETE FROM saga_steps WHERE saga = :saga AND id = :id

-- name: put_saga_state
-- A saga is in another state.
UPDATE sagas SET state = :state, error = COALESCE(CAST(:error AS TEXT), error), updated_at = :now
WHERE saga = :saga AND id = :id

-- name: put_saga_step
-- How far a step is.
INSERT INTO saga_steps (saga, id, step, state, attempts, undo_attempts, result, error, at)
VALUES (:saga, :id, :step, :state, :attempts, :undo_attempts, :result, :error, :now)
ON CONFLICT (saga, id, step) DO UPDATE SET state = excluded.state, attempts = excluded.attempts,
    undo_attempts = excluded.undo_attempts, result = excluded.result, error = excluded.error, at = excluded.at

-- name: list_sagas
-- Sagas, the latest first.
SELECT * FROM sagas WHERE {where} ORDER BY updated_at DESC, saga, id LIMIT :limit

-- name: saga_steps
-- The steps of a saga that were ever started.
SELECT * FROM saga_steps WHERE saga = :saga AND id = :id ORDER BY at, step

-- name: forget_saga_steps
-- Forget the steps of sagas that ended long ago.
DELETE FROM saga_steps WHERE saga = :saga AND EXISTS (SELECT 1 FROM sagas s WHERE s.saga = saga_steps.saga
    AND s.id = saga_steps.id AND s.state IN ('done', 'compensated') AND s.updated_at < :before)

-- name: forget_sagas
-- Forget sagas that ended long ago.
DELETE FROM sagas WHERE saga = :saga AND state IN ('done', 'compensated') AND updated_at < :before
