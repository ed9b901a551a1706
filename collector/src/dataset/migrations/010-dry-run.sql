-- What a dry run found: it pairs with later real runs whatever was predicted for them. The features stay the last
-- column, so that other queries do not read through them.
ALTER TABLE runs RENAME COLUMN features TO former_features;
ALTER TABLE runs ADD COLUMN dry_run TEXT;
ALTER TABLE runs ADD COLUMN features TEXT;
UPDATE runs SET features = former_features WHERE former_features IS NOT NULL;
ALTER TABLE runs DROP COLUMN former_features;
UPDATE runs SET dry_run = json_extract(predicted_source, '$.dry_run')
    WHERE origin = 'dry_run' AND json_valid(predicted_source);
