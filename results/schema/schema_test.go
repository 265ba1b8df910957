package schema_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
	"kplab/results"
	"kplab/results/schema"
)

const id = "urn:kplab:run:1"

func document(t *testing.T, text []byte) map[string]any {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	return doc.(map[string]any)
}

func compile(t *testing.T, doc map[string]any) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource(id, doc))
	s, err := c.Compile(id)
	require.NoError(t, err)
	return s
}

// strict is the schema without room for fields that it does not know: what this version of kplab writes must fit it.
func strict(t *testing.T) *jsonschema.Schema {
	doc := document(t, schema.Run)
	doc["additionalProperties"] = false
	for _, def := range doc["$defs"].(map[string]any) {
		if def := def.(map[string]any); def["properties"] != nil {
			def["additionalProperties"] = false
		}
	}
	return compile(t, doc)
}

// TestRuns validates what the store writes, a run of this machine and a file of the first version.
func TestRuns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	cell := lab.Cell{Scenario: "s", Parameters: map[string]string{"from": "ipvs"}, Mode: lab.NFTables, Kernel: lab.Kernel{Name: "host"}, KubeProxy: "1.37.2", Userland: lab.Userland{Name: "debian-12"}, Substrate: "netns"}
	store, err := results.Create(dir, results.Options{
		Host: results.ThisHost(), Command: []string{"kplab", "run"}, Plan: []lab.Cell{cell}, Claims: []lab.Claim{{ID: "N1", Source: "s", Text: "t"}}, Shard: "1/2",
	})
	require.NoError(t, err)
	m := store.Machine([]lab.Cell{cell})
	one := 1
	holds := lab.Holdings{VirtualServers: &one, IPTables: map[string]lab.TableCount{"nat": {Chains: 1, Rules: 2}}}
	for _, e := range []lab.Event{
		{Type: lab.EventReady, Machine: &lab.Machine{Release: "6.18.5", Accelerator: "host"}},
		{Type: lab.EventStart, Cell: cell.ID()},
		{Type: lab.EventCheck, Cell: cell.ID(), Check: &lab.Check{Claim: "N1", Step: "s.txtar:1", What: "probe", Expected: "refused", Observed: "refused", OK: true}},
		{Type: lab.EventGap, Cell: cell.ID(), Gap: &lab.Gap{Step: "s.txtar:2", Name: "tells", Kind: lab.UDPOneWay, Outcomes: map[string]int{"lost": 1}, Endpoints: map[string]int{"s1": 3}}},
		{Type: lab.EventSurvive, Cell: cell.ID(), Survive: &lab.Survivors{Step: "s.txtar:3", Name: "kept", Connections: 2, Outcomes: map[string]int{"alive": 2}}},
		{Type: lab.EventState, Cell: cell.ID(), State: &lab.State{
			Step: "s.txtar:4", Node: "n1", When: "after", Holds: holds, ConntrackEntries: &one, Sysctls: []lab.Sysctl{{Key: "net.ipv4.vs.conntrack", Value: "1", Other: "0"}},
			Foreign: []lab.Foreign{{Kind: "ipset", Name: "FOREIGN", Kept: true}}, Leftovers: &lab.Leftovers{Beyond: "n2", Holds: holds},
		}},
		{Type: lab.EventEvidence, Cell: cell.ID(), Path: "n1/nft.txt", Data: []byte("table\n")},
		{Type: lab.EventEnd, Cell: cell.ID(), Result: &lab.Result{Cell: cell, Verdict: lab.Pass}},
	} {
		require.NoError(t, m.Add(e))
	}
	run, err := store.Close("")
	require.NoError(t, err)
	require.Len(t, run.Cells[0].Gaps, 1)
	require.Len(t, run.Cells[0].Survivors, 1)
	require.Len(t, run.Cells[0].States, 1, "what a cell recorded is kept though its end does not repeat it")
	merged := filepath.Join(t.TempDir(), "merged")
	_, err = results.Merge(merged, []string{"kplab", "merge"}, dir)
	require.NoError(t, err)

	for _, tc := range []struct {
		file   string
		strict bool
	}{
		{filepath.Join(dir, "run.json"), true},
		{filepath.Join(merged, "run.json"), true},
		{"../report/testdata/run/run.json", true},
		{"../testdata/schema-1.json", false}, // it has a field of a later version
	} {
		t.Run(filepath.Base(filepath.Dir(tc.file)), func(t *testing.T) {
			text, err := os.ReadFile(tc.file)
			require.NoError(t, err)
			doc := document(t, text)
			assert.NoError(t, compile(t, document(t, schema.Run)).Validate(doc))
			if tc.strict {
				assert.NoError(t, strict(t).Validate(doc))
			}
		})
	}
}

// TestRefuses shows that the schema tells a run from what is none.
func TestRefuses(t *testing.T) {
	text, err := os.ReadFile("../report/testdata/run/run.json")
	require.NoError(t, err)
	s := compile(t, document(t, schema.Run))
	for name, spoil := range map[string]func(map[string]any){
		"another version":  func(run map[string]any) { run["schema"] = json.Number("2") },
		"no cells":         func(run map[string]any) { delete(run, "cells") },
		"unknown verdict":  func(run map[string]any) { cell(run)["verdict"] = "passed" },
		"unknown mode":     func(run map[string]any) { cell(run)["mode"] = "userspace" },
		"no observation":   func(run map[string]any) { delete(check(run), "observed") },
		"time of no day":   func(run map[string]any) { run["started"] = "yesterday" },
		"negative time":    func(run map[string]any) { run["durationMs"] = json.Number("-1") },
		"a shard of no N":  func(run map[string]any) { run["shard"] = "2" },
		"claims as object": func(run map[string]any) { run["claims"] = map[string]any{} },
	} {
		t.Run(name, func(t *testing.T) {
			run := document(t, text)
			spoil(run)
			assert.Error(t, s.Validate(run))
		})
	}
}

func cell(run map[string]any) map[string]any { return run["cells"].([]any)[1].(map[string]any) }

func check(run map[string]any) map[string]any { return cell(run)["checks"].([]any)[0].(map[string]any) }

// TestFields holds the schema against the Go types: the same fields, required where Go always writes them, and described.
func TestFields(t *testing.T) {
	root := document(t, schema.Run)
	assert.Equal(t, json.Number("1"), root["properties"].(map[string]any)["schema"].(map[string]any)["const"])
	assert.Equal(t, 1, results.Schema, "a new version needs a schema of its own")
	compareFields(t, root, root, "run", reflect.TypeFor[results.Run]())
}

func compareFields(t *testing.T, root, object map[string]any, path string, of reflect.Type) {
	t.Helper()
	properties := object["properties"].(map[string]any)
	var required, wantRequired, names, wantNames []string
	for _, r := range object["required"].([]any) {
		required = append(required, r.(string))
	}
	for name, p := range properties {
		names = append(names, name)
		p := p.(map[string]any)
		if _, ref := p["$ref"]; !ref {
			assert.NotEmpty(t, p["description"], "%s.%s is not described", path, name)
		}
	}
	for _, f := range reflect.VisibleFields(of) {
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if f.Anonymous || tag == "-" || name == "" || shadowed(of, f) {
			continue
		}
		wantNames = append(wantNames, name)
		if options == "" {
			wantRequired = append(wantRequired, name)
		}
		property, ok := properties[name].(map[string]any)
		if !ok {
			continue
		}
		kind := f.Type
		for kind.Kind() == reflect.Slice || kind.Kind() == reflect.Pointer {
			if kind.Kind() == reflect.Slice {
				property, _ = property["items"].(map[string]any)
			}
			kind = kind.Elem()
		}
		if kind.Kind() == reflect.Struct && kind != reflect.TypeFor[time.Time]() {
			if ref, ok := property["$ref"].(string); assert.True(t, ok, "%s.%s is no $ref", path, name) {
				def := root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
				compareFields(t, root, def, path+"."+name, kind)
			}
		}
	}
	slices.Sort(required)
	slices.Sort(wantRequired)
	slices.Sort(names)
	slices.Sort(wantNames)
	assert.Equal(t, wantNames, names, "fields of %s", path)
	assert.Equal(t, wantRequired, required, "required fields of %s", path)
}

// shadowed reports whether encoding/json leaves an embedded struct's field out for one of the struct around it.
func shadowed(of reflect.Type, f reflect.StructField) bool {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	for _, o := range reflect.VisibleFields(of) {
		if other, _, _ := strings.Cut(o.Tag.Get("json"), ","); other == name && len(o.Index) < len(f.Index) {
			return true
		}
	}
	return false
}
