-- What jobs of radrmd held after their first optimizer steps: beside their peak it shows whether they took more later.
CREATE TABLE IF NOT EXISTS first_steps (
    run INTEGER PRIMARY KEY,
    steps INTEGER NOT NULL,
    held_bytes INTEGER NOT NULL
);
CREATE TRIGGER IF NOT EXISTS first_steps_are_deleted_with_their_run AFTER DELETE ON runs BEGIN
    DELETE FROM first_steps WHERE run = OLD.id;
END;
