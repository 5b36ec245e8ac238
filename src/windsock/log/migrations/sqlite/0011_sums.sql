-- How many events of a watcher are gone, and why: archived ones are counted by their files.
CREATE TABLE forgotten (
    watcher_id INTEGER PRIMARY KEY,
    purged INTEGER NOT NULL DEFAULT 0,
    erased INTEGER NOT NULL DEFAULT 0,
    lost INTEGER NOT NULL DEFAULT 0
);

-- What became of all that a watcher logged. What came back out of an archive is still counted there.
CREATE VIEW sums AS
SELECT w.id AS watcher_id, w.name AS watcher, w.logged,
    (SELECT COUNT(*) FROM events e WHERE e.watcher_id = w.id)
        - (SELECT COUNT(*) FROM restored r JOIN events e ON e.seq = r.seq WHERE e.watcher_id = w.id) AS stored,
    (SELECT CAST(COALESCE(SUM(a.count), 0) AS BIGINT) FROM archives a
        WHERE a.watcher_id = w.id AND a.state = 'stored') AS archived,
    COALESCE(f.purged, 0) AS purged, COALESCE(f.erased, 0) AS erased, COALESCE(f.lost, 0) AS lost
FROM watchers w LEFT JOIN forgotten f ON f.watcher_id = w.id;

-- Until now nobody counted: what is not there any more was purged.
INSERT INTO forgotten (watcher_id, purged)
SELECT watcher_id, logged - stored - archived FROM sums WHERE logged > stored + archived
