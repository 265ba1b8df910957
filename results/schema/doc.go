// Package schema publishes the JSON Schemas (draft 2020-12) of the JSON that kplab writes.
//
//	bench.schema.json     bench.json
//	compare.schema.json   what kplab compare --format json prints
//	ledger.schema.json    what kplab ledger --format json prints
//	report.schema.json    report.json
//	run.schema.json       run.json
//	selftest.schema.json  selftest.json
//
// Each describes every field of version 1, with its unit and what its absence means, for programs in other languages and for
// validators in CI. It leaves room for fields that it does not know, as readers must. What a file has from run.json its schema refers
// to by the $id of that of run.json, urn:kplab:run:1: a validator needs to be given both.
//
// The tests, with package schematest, hold each against the Go types, field by field, and against files.
package schema

import _ "embed"

// Bench is the schema of bench.json, version bench.Schema: bench.schema.json.
//
//go:embed bench.schema.json
var Bench []byte

// Compare is the schema of what kplab compare --format json prints, version results.ComparisonSchema: compare.schema.json.
//
//go:embed compare.schema.json
var Compare []byte

// Ledger is the schema of what kplab ledger --format json prints, version results.BookSchema: ledger.schema.json.
//
//go:embed ledger.schema.json
var Ledger []byte

// Report is the schema of report.json, version report.Schema: report.schema.json.
//
//go:embed report.schema.json
var Report []byte

// Run is the schema of run.json, version results.Schema: run.schema.json.
//
//go:embed run.schema.json
var Run []byte

// Selftest is the schema of selftest.json, version selftestSchema of kplab's selftest: selftest.schema.json.
//
//go:embed selftest.schema.json
var Selftest []byte
