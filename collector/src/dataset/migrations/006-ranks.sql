-- Which ranks of a larger job a dry run ran, as a JSON array: the others were modelled.
CREATE TABLE IF NOT EXISTS ranks (
    run INTEGER PRIMARY KEY,
    world INTEGER NOT NULL,
    per_node INTEGER NOT NULL,
    ran TEXT NOT NULL
);
CREATE TRIGGER IF NOT EXISTS ranks_are_deleted_with_their_run AFTER DELETE ON runs BEGIN
    DELETE FROM ranks WHERE run = OLD.id;
END;
