package store

import _ "embed"

//go:embed schema.sql
var schema string

//go:embed added.sql
var added string

//go:embed snapshots.sql
var snapshots string

//go:embed steps.sql
var steps string

//go:embed leases.sql
var leases string

//go:embed answers.sql
var answers string

//go:embed missing.sql
var missing string

// schemaVersion goes up with every change of the tables.
const schemaVersion = 8
