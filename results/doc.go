// Package results keeps what a run of the lab found and shows it to people and to machines.
//
// A [Store] takes the [lab.Event]s of every machine that takes part and leaves a folder:
//
//	run.json      the run: a [Run], rewritten while cells end
//	events.jsonl  every event, appended at once; [Recover] rebuilds run.json from it after a kill -9
//	matrix.md     scenarios x settings, what differs between modes, what failed and how to repeat it
//	ledger.md     every claim: confirmed, contradicted or untested
//	junit.xml     the same cells for CI
//	cells/ID/     the evidence of each cell
//	machines/ID/  what a machine left that belongs to no cell, such as a guest's console log
//
// run.json is versioned ([Schema]) and described by a JSON Schema, schema/run.schema.json; so are the other JSON files.
//
// [Merge] joins the shards of a matrix (`kplab run --shard I/N`) into one run. Its folder has cells/ and the reports as any run's, and
// shards/N/ with the events and the machines' files of each shard in place of events.jsonl and machines/.
//
// [Compare] says what changed from one run to another, and in figures, which package figures reads. Package report makes a page of runs
// and figures.
//
// [Text] and [Markdown] render a run, [LedgerText] and [LedgerMarkdown] its claims, [JUnit] its cells as JUnit XML,
// and [Progress] follows a run live.
package results
