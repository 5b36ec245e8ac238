-- What `windsock postgres install-trigger` runs, one transaction. The names in braces are quoted identifiers
-- and literals; {relation}, {keys} and {channel} are arguments of the trigger.

-- name: outbox
-- One row per change that nobody has taken yet. The reader deletes what is stored in its log.
CREATE TABLE IF NOT EXISTS {outbox} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    transaction xid8 NOT NULL DEFAULT pg_current_xact_id(),
    changed timestamptz NOT NULL DEFAULT clock_timestamp(),
    relation text NOT NULL,
    operation text NOT NULL,
    key json,
    old json,
    new json
);

-- name: capture
-- Writes a change into the outbox and wakes the reader when its transaction commits. It runs with the rights
-- of whoever installed it, so that those who write to the table need none on the outbox.
CREATE OR REPLACE FUNCTION {capture}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $windsock$
DECLARE
    -- Arguments: the relation's name, the channel, the columns of the primary key.
    before json := CASE WHEN TG_OP IN ('UPDATE', 'DELETE') THEN to_json(OLD) END;
    after json := CASE WHEN TG_OP IN ('INSERT', 'UPDATE') THEN to_json(NEW) END;
    keys json;
BEGIN
    SELECT json_object_agg(name, coalesce(after, before) -> name ORDER BY place) INTO keys
      FROM unnest(TG_ARGV[2:]) WITH ORDINALITY AS part(name, place)
     WHERE TG_LEVEL = 'ROW';
    INSERT INTO {outbox} (relation, operation, key, old, new)
    VALUES (TG_ARGV[0], lower(TG_OP), keys, before, after);
    PERFORM pg_notify(TG_ARGV[1], '');
    RETURN NULL;
END
$windsock$;

-- name: rows
CREATE OR REPLACE TRIGGER windsock_rows AFTER {operations} ON {table}
FOR EACH ROW EXECUTE FUNCTION {capture}({arguments});

-- name: truncate
CREATE OR REPLACE TRIGGER windsock_truncate AFTER TRUNCATE ON {table}
FOR EACH STATEMENT EXECUTE FUNCTION {capture}({arguments});

-- name: remove
DROP TRIGGER IF EXISTS windsock_rows ON {table};
DROP TRIGGER IF EXISTS windsock_truncate ON {table};
