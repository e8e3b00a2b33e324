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
