-- Times are Unix milliseconds. Tables are strict, so that a wrong type is an error.
CREATE TABLE takes ( -- one row for each counted call, and one for each of its targets
  id        INTEGER PRIMARY KEY,
  principal TEXT    NOT NULL,
  target    TEXT    NOT NULL, -- '' for the call itself, else KIND:NAME
  at        INTEGER NOT NULL
) STRICT;
CREATE INDEX takes_key ON takes (principal, target, at);
CREATE INDEX takes_at ON takes (at);

CREATE TABLE costs ( -- reservations; settled ones hold what was spent
  id        INTEGER PRIMARY KEY,
  principal TEXT    NOT NULL,
  day       TEXT    NOT NULL, -- UTC
  micros    INTEGER NOT NULL CHECK (micros >= 0),
  settled   INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX costs_key ON costs (principal, day);
