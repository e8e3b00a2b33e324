-- What version 5 added to version 4.
ALTER TABLE snapshots ADD COLUMN host TEXT NOT NULL DEFAULT ''; -- node that the guest was on
ALTER TABLE snapshots ADD COLUMN program TEXT NOT NULL DEFAULT '';

CREATE TABLE steps ( -- of calls, with what takes them back
  call    TEXT    NOT NULL,
  n       INTEGER NOT NULL,
  expires INTEGER NOT NULL,
  step    TEXT    NOT NULL, -- JSON
  PRIMARY KEY (call, n)
) STRICT, WITHOUT ROWID;
