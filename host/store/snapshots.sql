-- What version 4 added to version 3.
CREATE TABLE snapshots ( -- of guests, that the host took before a call changed them
  cluster   TEXT    NOT NULL,
  vmid      TEXT    NOT NULL,
  name      TEXT    NOT NULL,
  node      TEXT    NOT NULL,
  call      TEXT    NOT NULL,
  principal TEXT    NOT NULL,
  tool      TEXT    NOT NULL,
  made      INTEGER NOT NULL,
  expires   INTEGER NOT NULL,
  keep      INTEGER NOT NULL,
  taken     INTEGER NOT NULL, -- 0 until the node said so
  running   INTEGER NOT NULL, -- the guest was
  PRIMARY KEY (cluster, vmid, name)
) STRICT, WITHOUT ROWID;
