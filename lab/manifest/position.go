package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// lineOf finds the line of the field that path leads to, as "spec.ports[0].port"; of its nearest parent if the field
// cannot be found, and otherwise if node is nil. Of a field given twice, it is the second.
func lineOf(node *yamlv3.Node, path string, otherwise int) int {
	line := otherwise
	for node != nil && path != "" {
		if node = resolve(node); node == nil {
			break
		}
		if i, rest, ok := cutIndex(path); ok {
			if node.Kind != yamlv3.SequenceNode || i >= len(node.Content) {
				break
			}
			node, path = node.Content[i], rest
			line = node.Line
			continue
		}
		key, value, rest := cutKey(node, path)
		if key == nil {
			break
		}
		line, node, path = key.Line, value, rest
	}
	return line
}

var index = regexp.MustCompile(`^\[(\d+)\]\.?`)

// cutIndex cuts a leading "[3]" off path.
func cutIndex(path string) (i int, rest string, ok bool) {
	m := index.FindStringSubmatch(path)
	if m == nil {
		return 0, path, false
	}
	i, err := strconv.Atoi(m[1])
	return i, path[len(m[0]):], err == nil
}

// cutKey finds the field of a mapping that path begins with. Keys may contain dots themselves, as labels do.
func cutKey(node *yamlv3.Node, path string) (key, value *yamlv3.Node, rest string) {
	if node.Kind != yamlv3.MappingNode {
		return nil, nil, path
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		k := node.Content[i]
		after, ok := strings.CutPrefix(path, k.Value)
		if !ok || k.Value == "" || (after != "" && after[0] != '.' && after[0] != '[') || (key != nil && len(k.Value) < len(key.Value)) {
			continue
		}
		key, value, rest = k, node.Content[i+1], strings.TrimPrefix(after, ".")
	}
	return key, value, rest
}

// child returns the value of a mapping's field, or nil.
func child(node *yamlv3.Node, name string) *yamlv3.Node {
	if node = resolve(node); node == nil || node.Kind != yamlv3.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return resolve(node.Content[i+1])
		}
	}
	return nil
}

// resolve follows an alias.
func resolve(node *yamlv3.Node) *yamlv3.Node {
	if node != nil && node.Kind == yamlv3.AliasNode {
		return node.Alias
	}
	return node
}

// cutLast splits "spec.ports[0].prot" into "spec.ports[0]" and "prot".
func cutLast(path string) (parent, name string) {
	if i := strings.LastIndex(path, "."); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}

// fieldsAt lists the names that a Go type's struct at path takes in JSON; none if path leads to no struct.
func fieldsAt(t reflect.Type, path string) []string {
	for {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			t = t.Elem()
		}
		for {
			_, rest, ok := cutIndex(path)
			if !ok {
				break
			}
			path = rest
		}
		if t.Kind() != reflect.Struct {
			return nil
		}
		fields := jsonFields(t)
		if path == "" {
			names := make([]string, 0, len(fields))
			for name := range fields {
				names = append(names, name)
			}
			slices.Sort(names)
			return names
		}
		name := path
		if i := strings.IndexAny(path, ".["); i >= 0 {
			name = path[:i]
		}
		next, ok := fields[name]
		if !ok {
			return nil
		}
		t, path = next, strings.TrimPrefix(path[len(name):], ".")
	}
}

func jsonFields(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name != "":
			fields[name] = f.Type
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			for n, inner := range jsonFields(f.Type) {
				fields[n] = inner
			}
		}
	}
	return fields
}

// failedValue returns the path of the value that did not fit its type, or "" if err does not tell.
func failedValue(data []byte, err error) string {
	var mismatch *json.UnmarshalTypeError
	if !errors.As(err, &mismatch) {
		return ""
	}
	// The error's own path lacks indexes and the keys of maps. A type with a decoder of its own (IntOrString) reports an
	// offset within its value; then only that path is right.
	path := pathAt(data, mismatch.Offset)
	if !strings.HasPrefix(anyIndex.ReplaceAllString(path, ""), mismatch.Field) {
		return mismatch.Field
	}
	return path
}

var anyIndex = regexp.MustCompile(`\[\d+\]`)

// pathAt returns the path of the first value of data that ends, or opens, at or after offset.
func pathAt(data []byte, offset int64) string {
	type level struct {
		key   string // "" before the first key and in an array
		index int
		array bool
		value bool // the key has been read, its value follows
	}
	var stack []level
	path := func() string {
		var b strings.Builder
		for _, l := range stack {
			switch {
			case l.array:
				b.WriteString("[" + strconv.Itoa(l.index) + "]")
			case b.Len() > 0:
				b.WriteString("." + l.key)
			default:
				b.WriteString(l.key)
			}
		}
		return b.String()
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		token, err := decoder.Token()
		if err != nil {
			return ""
		}
		if len(stack) > 0 {
			top := &stack[len(stack)-1]
			if !top.array && !top.value && token != json.Delim('}') {
				top.key, top.value = token.(string), true
				continue
			}
		}
		if token != json.Delim('}') && token != json.Delim(']') && decoder.InputOffset() >= offset {
			return path()
		}
		switch token {
		case json.Delim('{'):
			stack = append(stack, level{})
			continue
		case json.Delim('['):
			stack = append(stack, level{array: true})
			continue
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:len(stack)-1]
		}
		if len(stack) > 0 {
			top := &stack[len(stack)-1]
			top.index++
			top.value = false
		}
	}
}
