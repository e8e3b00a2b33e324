-- Version 2.
CREATE TABLE caponier.rounds ( -- what calls asked their users, until the answers come
  name    text   PRIMARY KEY,
  caller  text   NOT NULL,
  expires bigint NOT NULL,
  sealed  bytea  NOT NULL -- with a key that only the client of the call has
);
CREATE INDEX rounds_caller ON caponier.rounds (caller, expires);

-- Keeps a round. Over _most of its caller, or _all of everybody, the caller's oldest one goes;
-- without one of its own the round is not kept.
CREATE FUNCTION caponier.keep_round(_name text, _caller text, _sealed bytea, _most bigint,
  _all bigint, _ttl bigint, _at bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE _now bigint; _gone text;
BEGIN
  PERFORM caponier.lock(ARRAY['rounds ' || _caller]);
  _now := caponier.clock(_at);
  DELETE FROM caponier.rounds AS r WHERE r.caller = _caller AND r.expires <= _now;
  IF (SELECT count(*) FROM caponier.rounds AS r WHERE r.caller = _caller) >= _most
      OR (SELECT count(*) FROM caponier.rounds AS r WHERE r.expires > _now) >= _all THEN
    DELETE FROM caponier.rounds AS r WHERE r.name = (SELECT o.name FROM caponier.rounds AS o
      WHERE o.caller = _caller ORDER BY o.expires LIMIT 1) RETURNING r.name INTO _gone;
    IF _gone IS NULL THEN RETURN false; END IF;
  END IF;
  INSERT INTO caponier.rounds VALUES (_name, _caller, _now + _ttl, _sealed);
  RETURN true;
END $$;

CREATE TABLE caponier.leases ( -- of guests that red operations change; rows stay, for their fences
  name    text   PRIMARY KEY,
  holder  text   NOT NULL,
  fence   bigint NOT NULL, -- one more each time that it is taken
  expires bigint NOT NULL
);

-- Takes a lease, or returns the fence 0 and who has it. One that ends after more than its time was
-- taken by a clock that was ahead.
CREATE FUNCTION caponier.take_lease(_name text, _by text, _ttl bigint, _at bigint)
RETURNS TABLE (_fence bigint, _holder text) LANGUAGE plpgsql AS $$
DECLARE _now bigint;
BEGIN
  PERFORM caponier.lock(ARRAY['lease ' || _name]);
  _now := caponier.clock(_at);
  INSERT INTO caponier.leases AS l VALUES (_name, _by, 1, _now + _ttl)
    ON CONFLICT (name) DO UPDATE SET holder = _by, fence = l.fence + 1, expires = _now + _ttl
    WHERE l.expires <= _now OR l.expires > _now + _ttl + 2000 RETURNING l.fence INTO _fence;
  IF _fence IS NULL THEN
    RETURN QUERY SELECT 0::bigint, l.holder FROM caponier.leases AS l WHERE l.name = _name;
  ELSE
    RETURN QUERY SELECT _fence, '';
  END IF;
END $$;
