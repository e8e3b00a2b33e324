-- What version 7 added to version 6: how many persons have to say yes, and each one's yes in JSON.
ALTER TABLE approvals ADD COLUMN need INTEGER NOT NULL DEFAULT 1;
ALTER TABLE approvals ADD COLUMN answers TEXT NOT NULL DEFAULT '[]';
