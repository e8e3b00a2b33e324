-- What version 3 added to version 2.
CREATE TABLE sessions ( -- of the approval page
  id      TEXT    PRIMARY KEY,
  name    TEXT    NOT NULL,
  expires INTEGER NOT NULL,
  ttl     INTEGER NOT NULL,
  origin  INTEGER NOT NULL
) STRICT;

CREATE TABLE stages ( -- directories and partial files that a process removes when its call ends
  node    TEXT NOT NULL, -- '' is this machine
  path    TEXT NOT NULL,
  process TEXT NOT NULL, -- names the file that the process locks while it lives
  PRIMARY KEY (node, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE trial ( -- of Ready
  id INTEGER PRIMARY KEY,
  at INTEGER NOT NULL
) STRICT;
