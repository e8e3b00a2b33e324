-- Times are Unix milliseconds. Tables are strict, so that a wrong type is an error.
CREATE TABLE rates ( -- how often each key was counted in each second
  key    TEXT    NOT NULL,
  second INTEGER NOT NULL, -- Unix
  n      INTEGER NOT NULL,
  PRIMARY KEY (key, second)
) STRICT, WITHOUT ROWID;
CREATE INDEX rates_second ON rates (second);

CREATE TABLE costs ( -- reserved, or spent once settled
  id        INTEGER PRIMARY KEY,
  principal TEXT    NOT NULL,
  day       TEXT    NOT NULL, -- UTC
  micros    INTEGER NOT NULL CHECK (micros >= 0),
  settled   INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX costs_key ON costs (principal, day);

CREATE TABLE approvals (
  id        TEXT    PRIMARY KEY,
  key       TEXT    NOT NULL, -- digest of what the approval is bound to
  principal TEXT    NOT NULL, -- who asks
  tool      TEXT    NOT NULL,
  state     TEXT    NOT NULL, -- waiting, approved, denied or used
  created   INTEGER NOT NULL,
  expires   INTEGER NOT NULL,
  ttl       INTEGER NOT NULL,
  revision  TEXT    NOT NULL,
  detail    TEXT    NOT NULL,
  decided   INTEGER NOT NULL DEFAULT 0,
  by        TEXT    NOT NULL DEFAULT '',
  channel   TEXT    NOT NULL DEFAULT '',
  note      TEXT    NOT NULL DEFAULT '',
  origin    INTEGER NOT NULL DEFAULT 0 -- when the machine started, by the clock of then
) STRICT;
CREATE UNIQUE INDEX approvals_one ON approvals (key) WHERE state IN ('waiting', 'approved', 'denied');
CREATE INDEX approvals_expires ON approvals (expires);

CREATE TABLE blobs (
  id        TEXT    PRIMARY KEY,
  principal TEXT    NOT NULL,
  name      TEXT    NOT NULL,
  mime      TEXT    NOT NULL,
  bytes     INTEGER NOT NULL CHECK (bytes >= 0),
  sha256    TEXT    NOT NULL,
  created   INTEGER NOT NULL,
  expires   INTEGER NOT NULL
) STRICT;
CREATE INDEX blobs_owner ON blobs (principal);
