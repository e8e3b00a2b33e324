-- What version 6 added to version 5.
CREATE TABLE leases ( -- of guests that red operations change; rows stay, for their fences
  name    TEXT    NOT NULL PRIMARY KEY,
  holder  TEXT    NOT NULL,
  fence   INTEGER NOT NULL, -- one more each time that it is taken
  expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
