// Package schematest holds the schemas of package schema against Go types and files, in the tests of the packages that these are in.
package schematest

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/results/schema"
)

// Document reads JSON as validators want it.
func Document(t *testing.T, text []byte) map[string]any {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	require.IsType(t, map[string]any{}, doc)
	return doc.(map[string]any)
}

// published returns the schemas by their $id.
func published(t *testing.T) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, text := range [][]byte{schema.Bench, schema.Compare, schema.Ledger, schema.Report, schema.Run, schema.Selftest} {
		doc := Document(t, text)
		id := doc["$id"].(string)
		require.NotContains(t, all, id)
		all[id] = doc
	}
	return all
}

// Compile makes a published schema ready to validate.
func Compile(t *testing.T, text []byte) *jsonschema.Schema {
	t.Helper()
	return compile(t, text, published(t))
}

// Strict is a published schema without room for fields that it does not know: what this version of kplab writes must fit it.
func Strict(t *testing.T, text []byte) *jsonschema.Schema {
	t.Helper()
	all := published(t)
	for _, doc := range all {
		doc["additionalProperties"] = false
		for _, def := range doc["$defs"].(map[string]any) {
			if def := def.(map[string]any); def["properties"] != nil {
				def["additionalProperties"] = false
			}
		}
	}
	return compile(t, text, all)
}

func compile(t *testing.T, text []byte, all map[string]map[string]any) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	for id, doc := range all {
		require.NoError(t, c.AddResource(id, doc))
	}
	s, err := c.Compile(Document(t, text)["$id"].(string))
	require.NoError(t, err)
	return s
}

// Spoiled is one way to make a document invalid.
type Spoiled struct {
	Name  string
	At    string // JSON pointer to what is set, or taken out
	Value any    // nil takes it out
}

// Refuses asserts that a schema takes a document as it is, and refuses each that is spoiled, for what is spoiled in it.
func Refuses(t *testing.T, text, document []byte, ways []Spoiled) {
	t.Helper()
	s := Compile(t, text)
	require.NoError(t, s.Validate(Document(t, document)))
	for _, way := range ways {
		t.Run(way.Name, func(t *testing.T) {
			doc := Document(t, document)
			slash := strings.LastIndex(way.At, "/")
			parent, key := at(t, doc, way.At[:slash]).(map[string]any), way.At[slash+1:]
			want := "at '" + way.At
			if parent[key] = way.Value; way.Value == nil {
				delete(parent, key)
				want = "at '" + way.At[:slash] + "': missing property '" + key + "'"
			}
			assert.ErrorContains(t, s.Validate(doc), want)
		})
	}
}

// at follows a JSON pointer.
func at(t *testing.T, doc any, pointer string) any {
	t.Helper()
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		switch v := doc.(type) {
		case map[string]any:
			if token != "" {
				require.Contains(t, v, token, pointer)
				doc = v[token]
			}
		case []any:
			i, err := strconv.Atoi(token)
			require.NoError(t, err, pointer)
			require.Less(t, i, len(v), pointer)
			doc = v[i]
		default:
			require.Fail(t, "nothing lies below "+token, pointer)
		}
	}
	return doc
}

// Enumerates asserts that a published schema allows just these values at a JSON pointer.
func Enumerates[T ~string](t *testing.T, text []byte, pointer string, values ...T) {
	t.Helper()
	var want []any
	for _, v := range values {
		want = append(want, string(v))
	}
	assert.ElementsMatch(t, want, at(t, Document(t, text), pointer+"/enum"), pointer)
}

// Fields asserts that a published schema is of a version and has the fields of a Go type: all of them and no others, described, of
// the type as which Go writes them, and required where Go always does.
func Fields(t *testing.T, text []byte, version int, of reflect.Type) {
	t.Helper()
	root := Document(t, text)
	assert.Equal(t, json.Number(strconv.Itoa(version)), at(t, root, "/properties/schema/const"), "a new version needs a schema of its own")
	assert.True(t, strings.HasSuffix(root["$id"].(string), ":"+strconv.Itoa(version)), "%s is not of version %d", root["$id"], version)
	c := comparison{t, published(t)}
	c.value(place{root, root}, of.Name(), of)
}

// place is a part of a schema, and the whole that its references are relative to.
type place struct{ root, part map[string]any }

type comparison struct {
	*testing.T
	published map[string]map[string]any
}

// resolve follows references.
func (c comparison) resolve(p place) place {
	c.Helper()
	for {
		ref, ok := p.part["$ref"].(string)
		if !ok {
			return p
		}
		id, pointer, _ := strings.Cut(ref, "#")
		if id != "" {
			require.Contains(c.T, c.published, id)
			p.root = c.published[id]
		}
		p.part = at(c.T, p.root, pointer).(map[string]any)
	}
}

// value compares what a field holds.
func (c comparison) value(p place, path string, of reflect.Type) {
	c.Helper()
	p = c.resolve(p)
	if _, ok := p.part["const"]; ok {
		return
	}
	switch kind := of.Kind(); {
	case kind == reflect.Pointer:
		c.value(p, path, of.Elem())
	case kind == reflect.Interface: // any: the schema says more than Go
	case of == reflect.TypeFor[time.Time]():
		c.typed(p, path, "string")
		assert.Equal(c.T, "date-time", p.part["format"], "format of %s", path)
	case kind == reflect.Struct:
		c.typed(p, path, "object")
		c.fields(p, path, of)
	case kind == reflect.Slice:
		c.typed(p, path, "array")
		c.below(p, "items", path, of.Elem())
	case kind == reflect.Map:
		c.typed(p, path, "object")
		c.below(p, "additionalProperties", path, of.Elem())
	case kind == reflect.String:
		c.typed(p, path, "string")
	case kind == reflect.Bool:
		c.typed(p, path, "boolean")
	case kind >= reflect.Int && kind <= reflect.Uint64:
		c.typed(p, path, "integer")
	case kind == reflect.Float64:
		c.typed(p, path, "number")
	default:
		assert.Fail(c.T, "nothing is known of the type", "%s is a %s", path, of)
	}
}

// below compares the elements of a list or of a map.
func (c comparison) below(p place, key, path string, of reflect.Type) {
	c.Helper()
	if element, ok := p.part[key].(map[string]any); assert.True(c.T, ok, "%s has no %s", path, key) {
		c.value(place{p.root, element}, path, of)
	}
}

func (c comparison) typed(p place, path, want string) {
	c.Helper()
	types, ok := p.part["type"].([]any)
	if !ok {
		types = []any{p.part["type"]}
	}
	assert.Contains(c.T, types, want, "type of %s", path)
}

func (c comparison) fields(p place, path string, of reflect.Type) {
	c.Helper()
	properties := p.part["properties"].(map[string]any)
	var required, wantRequired, names, wantNames []string
	for _, r := range p.part["required"].([]any) {
		required = append(required, r.(string))
	}
	for name, property := range properties {
		names = append(names, name)
		described := place{p.root, property.(map[string]any)}
		if described.part["description"] == nil {
			described = c.resolve(described)
		}
		assert.NotEmpty(c.T, described.part["description"], "%s.%s is not described", path, name)
	}
	for _, f := range reflect.VisibleFields(of) {
		name, optional := nameOf(f)
		if name == "" || shadowed(of, f) {
			continue
		}
		wantNames = append(wantNames, name)
		if !optional {
			wantRequired = append(wantRequired, name)
		}
		if property, ok := properties[name].(map[string]any); ok {
			c.value(place{p.root, property}, path+"."+name, f.Type)
		}
	}
	for _, list := range [][]string{required, wantRequired, names, wantNames} {
		slices.Sort(list)
	}
	assert.Equal(c.T, wantNames, names, "fields of %s", path)
	assert.Equal(c.T, wantRequired, required, "required fields of %s", path)
}

// nameOf is what encoding/json calls a field, "" if it does not write it as such, and whether it leaves it out where it is empty.
func nameOf(f reflect.StructField) (name string, optional bool) {
	tag := f.Tag.Get("json")
	if f.Anonymous || !f.IsExported() || tag == "-" {
		return "", false
	}
	name, options, _ := strings.Cut(tag, ",")
	if name == "" {
		name = f.Name
	}
	return name, options != ""
}

// shadowed reports whether encoding/json leaves an embedded struct's field out for one of the struct around it.
func shadowed(of reflect.Type, f reflect.StructField) bool {
	name, _ := nameOf(f)
	return slices.ContainsFunc(reflect.VisibleFields(of), func(o reflect.StructField) bool {
		other, _ := nameOf(o)
		return other == name && len(o.Index) < len(f.Index)
	})
}
