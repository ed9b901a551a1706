-- On which cards a dry run's program fits: a row for each card. `seconds` is NULL where the verdict follows from a run on
-- another card.
CREATE TABLE fits (
    run INTEGER NOT NULL,
    card TEXT NOT NULL,
    verdict TEXT NOT NULL,
    why TEXT,
    need_bytes INTEGER NOT NULL,
    memory_bytes INTEGER NOT NULL,
    seconds REAL,
    PRIMARY KEY (run, card)
) WITHOUT ROWID;
CREATE TRIGGER fits_are_deleted_with_their_run AFTER DELETE ON runs BEGIN
    DELETE FROM fits WHERE run = OLD.id;
END;
