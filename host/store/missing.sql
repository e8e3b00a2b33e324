-- What version 8 added to version 7: when a stage was first looked for in vain, on the clock of
-- Store.running; 0 for never.
ALTER TABLE stages ADD COLUMN missing INTEGER NOT NULL DEFAULT 0;
