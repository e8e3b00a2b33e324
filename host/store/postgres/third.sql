-- Version 3: how many persons have to say yes, and each one's yes in JSON.
ALTER TABLE caponier.approvals ADD COLUMN need bigint NOT NULL DEFAULT 1;
ALTER TABLE caponier.approvals ADD COLUMN answers text NOT NULL DEFAULT '[]';
DROP FUNCTION caponier.ask(text, text, text, text, bigint, text, text, bigint, bigint);

-- Returns the request with that key, or makes it; none when too many wait.
CREATE FUNCTION caponier.ask(_id text, _key text, _principal text, _tool text, _ttl bigint,
  _revision text, _detail text, _limit bigint, _at bigint,
  _need bigint)
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
    expires, ttl, revision, detail, need) VALUES (_id, _key, _principal, _tool, 'waiting', _now,
    _now + _ttl, _ttl, _revision, _detail, _need) RETURNING a.*;
END $$;
