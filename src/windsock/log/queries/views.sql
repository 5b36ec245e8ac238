-- Read models.

-- name: list_views
-- The generations of every read model, or of one.
SELECT * FROM views WHERE CAST(:name AS TEXT) IS NULL OR name = :name ORDER BY name, generation

-- name: live_view
-- The generation of a read model that readers see.
SELECT * FROM views WHERE name = :name AND live = 1

-- name: hold_view
-- A generation of a read model, held until the end of the transaction.
SELECT * FROM views WHERE name = :name AND generation = :generation {lock}

-- name: last_generation
-- How often a read model was begun.
SELECT COALESCE(MAX(generation), 0) AS n FROM views WHERE name = :name

-- name: insert_view
-- A generation begins.
INSERT INTO views (name, generation, version, position, events, live, updated_at)
VALUES (:name, :generation, :version, 0, 0, :live, :now)
ON CONFLICT (name, generation) DO NOTHING

-- name: advance_view
-- A generation has come further.
UPDATE views SET position = :position, events = events + :events, updated_at = :now
WHERE name = :name AND generation = :generation

-- name: publish_view
-- Readers see this generation, and no other.
UPDATE views SET live = CASE WHEN generation = :generation THEN 1 ELSE 0 END WHERE name = :name

-- name: delete_view
-- A generation is gone.
DELETE FROM views WHERE name = :name AND generation = :generation

-- name: delete_rows
-- Some rows of a generation.
DELETE FROM view_rows WHERE name = :name AND generation = :generation AND key IN (
    SELECT r.key FROM view_rows r WHERE r.name = :name AND r.generation = :generation ORDER BY r.key LIMIT :size)

-- name: put_row
-- A row, new or changed.
INSERT INTO view_rows (name, generation, key, value) VALUES (:name, :generation, :key, :value)
ON CONFLICT (name, generation, key) DO UPDATE SET value = excluded.value

-- name: delete_row
-- A row that is no more.
DELETE FROM view_rows WHERE name = :name AND generation = :generation AND key = :key

-- name: view_rows
-- Rows in the order of their keys, of a generation or of the live one.
SELECT key, value FROM view_rows WHERE name = :name AND generation = COALESCE(CAST(:generation AS BIGINT),
    (SELECT v.generation FROM views v WHERE v.name = :name AND v.live = 1)) AND {where}
ORDER BY key LIMIT :limit
