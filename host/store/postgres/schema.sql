-- Version 1. Times are Unix milliseconds, by the clock of the database.
-- Each function takes what time it is as its last argument: null for the clock of the database.
CREATE FUNCTION caponier.clock(_at bigint) RETURNS bigint LANGUAGE sql AS
  $$ SELECT coalesce(_at, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) $$;

CREATE TABLE caponier.rates ( -- how often each key was counted in each second
  key    text   NOT NULL,
  second bigint NOT NULL, -- Unix
  n      bigint NOT NULL,
  PRIMARY KEY (key, second)
);
CREATE INDEX rates_second ON caponier.rates (second);

CREATE TABLE caponier.costs ( -- reserved, or spent once settled
  id        bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  principal text    NOT NULL,
  day       text    NOT NULL, -- UTC
  micros    bigint  NOT NULL CHECK (micros >= 0),
  settled   boolean NOT NULL DEFAULT false
);
CREATE INDEX costs_key ON caponier.costs (principal, day);

CREATE TABLE caponier.approvals (
  id        text   PRIMARY KEY,
  key       text   NOT NULL, -- digest of what the approval is bound to
  principal text   NOT NULL, -- who asks
  tool      text   NOT NULL,
  state     text   NOT NULL, -- waiting, approved, denied or used
  created   bigint NOT NULL,
  expires   bigint NOT NULL,
  ttl       bigint NOT NULL,
  revision  text   NOT NULL,
  detail    text   NOT NULL,
  decided   bigint NOT NULL DEFAULT 0,
  by        text   NOT NULL DEFAULT '',
  channel   text   NOT NULL DEFAULT '',
  note      text   NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX approvals_one ON caponier.approvals (key)
  WHERE state IN ('waiting', 'approved', 'denied');

CREATE TABLE caponier.sessions ( -- of the approval page
  id      text   PRIMARY KEY,
  name    text   NOT NULL,
  expires bigint NOT NULL,
  ttl     bigint NOT NULL
);

CREATE TABLE caponier.blobs (
  id        text   PRIMARY KEY,
  host      text   NOT NULL, -- removes the bytes
  principal text   NOT NULL,
  name      text   NOT NULL,
  mime      text   NOT NULL,
  bytes     bigint NOT NULL CHECK (bytes >= 0),
  sha256    text   NOT NULL,
  created   bigint NOT NULL,
  expires   bigint NOT NULL
);
CREATE INDEX blobs_owner ON caponier.blobs (principal);

CREATE TABLE caponier.snapshots ( -- of guests, that a host took before a call changed them
  cluster text NOT NULL,
  vmid    text NOT NULL,
  name    text NOT NULL,
  made    bigint NOT NULL,
  value   text NOT NULL, -- JSON
  PRIMARY KEY (cluster, vmid, name)
);

CREATE TABLE caponier.steps ( -- of calls, with what takes them back
  call    text   NOT NULL,
  n       bigint NOT NULL,
  expires bigint NOT NULL,
  step    text   NOT NULL, -- JSON
  PRIMARY KEY (call, n)
);

CREATE TABLE caponier.freezes (
  kind  text NOT NULL,
  name  text NOT NULL,
  value text NOT NULL, -- JSON
  PRIMARY KEY (kind, name)
);

CREATE TABLE caponier.tokens (
  prefix text   PRIMARY KEY,
  value  text   NOT NULL, -- JSON, with the digest of the token
  used   bigint NOT NULL DEFAULT 0
);

CREATE TABLE caponier.hosts (
  name     text   PRIMARY KEY,
  seen     bigint NOT NULL,
  skew     bigint NOT NULL, -- milliseconds that its clock is ahead
  version  text   NOT NULL,
  revision text   NOT NULL,
  lock     text   NOT NULL
);

CREATE TABLE caponier.changes ( -- one row: another stamp after each change that decisions read
  stamp text NOT NULL
);
INSERT INTO caponier.changes VALUES (gen_random_uuid());

CREATE FUNCTION caponier.changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE caponier.changes SET stamp = gen_random_uuid();
  NOTIFY caponier;
  RETURN NULL;
END $$;
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON caponier.freezes
  EXECUTE FUNCTION caponier.changed();
CREATE TRIGGER changed AFTER INSERT OR UPDATE OF value OR DELETE OR TRUNCATE ON caponier.tokens
  EXECUTE FUNCTION caponier.changed();

-- What began and has not expired, and did not begin in the future.
CREATE FUNCTION caponier.live(_expires bigint, _ttl bigint, _now bigint) RETURNS boolean
  LANGUAGE sql IMMUTABLE AS
  $$ SELECT _expires > _now AND _expires - _ttl <= _now + 2000 $$;

CREATE FUNCTION caponier.lock(_names text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _name text;
BEGIN
  FOREACH _name IN ARRAY _names LOOP
    PERFORM pg_advisory_xact_lock(hashtextextended(_name, 0));
  END LOOP;
END $$;

CREATE FUNCTION caponier.day(_now bigint) RETURNS text LANGUAGE sql AS
  $$ SELECT to_char(to_timestamp(_now / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD') $$;

CREATE FUNCTION caponier.spent(_principal text, _day text) RETURNS bigint LANGUAGE sql AS
  $$ SELECT coalesce(sum(micros), 0)::bigint FROM caponier.costs
     WHERE principal = _principal AND day = _day $$;

-- Counts one more of each key, alone among those that count under the same locks. What is up to a
-- minute ahead counts too: after a failover another clock may be behind.
CREATE FUNCTION caponier.take(_locks text[], _keys text[], _principal text, _at bigint)
RETURNS TABLE (_ms bigint, _key text, _n bigint, _oldest bigint, _micros bigint, _stamp text)
LANGUAGE plpgsql AS $$
DECLARE _now bigint; _second bigint; _spent bigint;
BEGIN
  PERFORM caponier.lock(_locks);
  _now := caponier.clock(_at);
  _second := _now / 1000;
  DELETE FROM caponier.rates AS r
    WHERE r.key = ANY (_keys) AND r.second NOT BETWEEN _second - 60 AND _second + 60;
  INSERT INTO caponier.rates AS r (key, second, n)
    SELECT k, _second, count(*) FROM unnest(_keys) AS k GROUP BY k ORDER BY k
    ON CONFLICT (key, second) DO UPDATE SET n = r.n + excluded.n;
  _spent := caponier.spent(_principal, caponier.day(_now));
  RETURN QUERY SELECT _now, r.key, sum(r.n)::bigint, least(_second, min(r.second)), _spent,
      (SELECT stamp FROM caponier.changes)
    FROM caponier.rates AS r
    WHERE r.key = ANY (_keys) AND r.n > 0
    GROUP BY r.key;
END $$;

CREATE FUNCTION caponier.reserve(_principal text, _micros bigint, _limit bigint, _at bigint)
RETURNS TABLE (_ms bigint, _spent bigint, _id bigint) LANGUAGE plpgsql AS $$
DECLARE _now bigint;
BEGIN
  PERFORM caponier.lock(ARRAY['budget ' || _principal]);
  _now := caponier.clock(_at);
  _spent := caponier.spent(_principal, caponier.day(_now));
  _ms := _now;
  IF _micros <= _limit - _spent THEN
    INSERT INTO caponier.costs (principal, day, micros)
      VALUES (_principal, caponier.day(_now), _micros) RETURNING id INTO _id;
  END IF;
  RETURN NEXT;
END $$;

-- Returns the request with that key, or makes it; none when too many wait.
CREATE FUNCTION caponier.ask(_id text, _key text, _principal text, _tool text, _ttl bigint,
  _revision text, _detail text, _limit bigint, _at bigint)
RETURNS SETOF caponier.approvals LANGUAGE plpgsql AS $$
DECLARE _now bigint;
BEGIN
  PERFORM caponier.lock(ARRAY['approvals ' || _principal]);
  _now := caponier.clock(_at);
  DELETE FROM caponier.approvals AS a WHERE (a.principal = _principal OR a.key = _key)
    AND NOT caponier.live(a.expires, a.ttl, _now);
  RETURN QUERY SELECT * FROM caponier.approvals AS a
    WHERE a.key = _key AND a.state IN ('waiting', 'approved', 'denied');
  IF FOUND OR (SELECT count(*) FROM caponier.approvals AS a
      WHERE a.principal = _principal AND a.state = 'waiting') >= _limit THEN
    RETURN;
  END IF;
  RETURN QUERY INSERT INTO caponier.approvals AS a (id, key, principal, tool, state, created,
    expires, ttl, revision, detail) VALUES (_id, _key, _principal, _tool, 'waiting', _now,
    _now + _ttl, _ttl, _revision, _detail) RETURNING a.*;
END $$;

-- Adds a blob, and returns what its principal holds: with -1 when it was added.
CREATE FUNCTION caponier.add_blob(_id text, _host text, _principal text, _name text, _mime text,
  _bytes bigint, _sha256 text, _expires bigint, _limit bigint, _at bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE _now bigint; _held bigint;
BEGIN
  PERFORM caponier.lock(ARRAY['blobs ' || _principal]);
  _now := caponier.clock(_at);
  SELECT coalesce(sum(b.bytes), 0) INTO _held FROM caponier.blobs AS b
    WHERE b.principal = _principal AND b.expires > _now;
  IF _held > _limit OR _bytes > _limit - _held THEN RETURN _held; END IF;
  INSERT INTO caponier.blobs VALUES (_id, _host, _principal, _name, _mime, _bytes, _sha256, _now,
    _expires);
  RETURN -1;
END $$;
