// Package schema publishes the JSON Schema (draft 2020-12) of run.json.
//
// run.schema.json describes every field of version 1, with its unit and what its absence means, for programs in other
// languages and for validators in CI. It leaves room for fields that it does not know, as readers must. The tests hold it against the
// Go types, field by field, and against runs.
package schema

import _ "embed"

// Run is the schema of run.json.
//
//go:embed run.schema.json
var Run []byte
