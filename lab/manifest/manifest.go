// Package manifest reads Kubernetes manifests as the API server's strict decoding does, and says of each mistake the
// line it is on and what was expected instead.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"kplab/lab"
)

// kinds maps each kind that Decode knows to its apiVersion and type. v1 List is known besides these.
var kinds = map[string]struct {
	apiVersion string
	new        func() runtime.Object
}{
	"Service":       {"v1", func() runtime.Object { return &corev1.Service{} }},
	"Node":          {"v1", func() runtime.Object { return &corev1.Node{} }},
	"Pod":           {"v1", func() runtime.Object { return &corev1.Pod{} }},
	"Namespace":     {"v1", func() runtime.Object { return &corev1.Namespace{} }},
	"EndpointSlice": {"discovery.k8s.io/v1", func() runtime.Object { return &discoveryv1.EndpointSlice{} }},
	"ServiceCIDR":   {"networking.k8s.io/v1", func() runtime.Object { return &networkingv1.ServiceCIDR{} }},
}

// Kinds lists the kinds that Decode knows, sorted.
func Kinds() []string {
	names := []string{"List"}
	for k := range kinds {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

// An Error is one mistake in a manifest. Its text is one line: "file:line: what is wrong and what was expected".
type Error struct {
	File string
	Line int // counted from 1, in File
	What string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.What)
}

// Decode reads the objects of a manifest, in order: documents separated by "---", in YAML or JSON, each a v1 Service,
// Node, Pod, Namespace or List of these, a discovery.k8s.io/v1 EndpointSlice or a networking.k8s.io/v1 ServiceCIDR.
// Empty documents are skipped. Unknown fields, duplicate fields and unknown kinds are errors. The objects carry their
// apiVersion and kind and are neither defaulted nor validated.
//
// file and firstLine say where data begins, so that errors name lines as a reader of the file counts them. The error
// joins one *Error for each mistake found; it is nil if all of data is good.
func Decode(file string, firstLine int, data []byte) ([]runtime.Object, error) {
	var objects []runtime.Object
	var errs []error
	for _, part := range split(data) {
		d := document{file: file, line: firstLine + part.line, text: part.text}
		objects = append(objects, d.decode()...)
		errs = append(errs, d.errs...)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return objects, nil
}

type part struct {
	line int // lines of the data before it
	text []byte
}

var separator = regexp.MustCompile(`^---(\s.*)?$`)

// split cuts data at lines that begin a YAML document. What follows "---" on its line stays with the document.
func split(data []byte) []part {
	current := part{}
	var parts []part
	line := 0
	for l := range bytes.Lines(data) {
		if separator.Match(bytes.TrimRight(l, "\r\n")) {
			parts = append(parts, current)
			current = part{line: line}
			l = append([]byte("   "), l[len("---"):]...)
		}
		current.text = append(current.text, l...)
		line++
	}
	return append(parts, current)
}

// document is one YAML document on its way to objects.
type document struct {
	file string
	line int // line of the file that text begins on
	text []byte
	errs []error
}

// fail notes a mistake. line is counted within the document, from 1.
func (d *document) fail(line int, format string, args ...any) {
	// The YAML parser counts from 0 now and then, and takes more for a line's end than a reader does.
	last := bytes.Count(bytes.TrimSuffix(d.text, []byte("\n")), []byte("\n")) + 1
	line = min(max(line, 1), last)
	d.errs = append(d.errs, &Error{d.file, d.line + line - 1, oneLine(fmt.Sprintf(format, args...))})
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func (d *document) decode() []runtime.Object {
	asJSON, ok := d.toJSON()
	if !ok || string(asJSON) == "null" {
		return nil
	}
	var root *yamlv3.Node
	var node, next yamlv3.Node
	// The nodes serve to find lines; a text that this parser alone cannot read has none.
	parser := yamlv3.NewDecoder(bytes.NewReader(d.text))
	if parser.Decode(&node) == nil && len(node.Content) == 1 {
		root = node.Content[0]
		if err := parser.Decode(&next); !errors.Is(err, io.EOF) {
			at := next.Line
			if err != nil {
				at, _ = errorLine(err.Error())
			}
			d.fail(at, "expected --- before another document")
			return nil
		}
	}
	return d.object(asJSON, root)
}

var yamlErrorLine = regexp.MustCompile(`line (\d+): `)

// toJSON converts the document to JSON. A JSON document is taken as it is, since not all JSON is YAML (tabs).
func (d *document) toJSON() ([]byte, bool) {
	if t := bytes.TrimSpace(d.text); len(t) > 0 && t[0] == '{' && json.Valid(t) {
		return t, true
	}
	out, err := yaml.YAMLToJSONStrict(d.text)
	if err == nil {
		return out, true
	}
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	rest, isList := strings.CutPrefix(text, "unmarshal errors:\n")
	lines := []string{text}
	if isList {
		lines = strings.Split(rest, "\n")
	}
	for _, l := range lines {
		at, what := errorLine(l)
		d.fail(at, "expected YAML or JSON: %s", what)
	}
	return nil, false
}

// errorLine takes the line out of an error of the YAML parsers.
func errorLine(text string) (line int, rest string) {
	m := yamlErrorLine.FindStringSubmatchIndex(text)
	if m == nil {
		return 1, text
	}
	line, _ = strconv.Atoi(text[m[2]:m[3]])
	return line, text[:m[0]] + text[m[1]:]
}

// object decodes one object, or the items of a List. node is where it stands in the document, or nil.
func (d *document) object(data []byte, node *yamlv3.Node) []runtime.Object {
	start := 1
	if node != nil {
		start = node.Line
	}
	var t struct {
		APIVersion any `json:"apiVersion"`
		Kind       any `json:"kind"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &t); err != nil {
		d.fail(start, "expected an object with apiVersion and kind, got %s", shorten(data))
		return nil
	}
	kind, _ := t.Kind.(string)
	apiVersion, _ := t.APIVersion.(string)
	if kind == "" || apiVersion == "" {
		d.fail(start, "apiVersion and kind are required; known kinds are %s", strings.Join(Kinds(), ", "))
		return nil
	}
	want, into := "v1", func() runtime.Object { return nil }
	if kind != "List" {
		known, ok := kinds[kind]
		if !ok {
			d.fail(lineOf(node, "kind", start), "unknown kind %q%s", kind, lab.Suggest(kind, Kinds()))
			return nil
		}
		want, into = known.apiVersion, known.new
	}
	if apiVersion != want {
		d.fail(lineOf(node, "apiVersion", start), "unknown apiVersion %q of kind %s: expected %q", apiVersion, kind, want)
		return nil
	}
	if kind == "List" {
		return d.list(data, node, start)
	}
	obj := into()
	if !d.strict(data, obj, node, start) {
		return nil
	}
	return []runtime.Object{obj}
}

func (d *document) list(data []byte, node *yamlv3.Node, start int) []runtime.Object {
	var list struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   map[string]any    `json:"metadata"`
		Items      []json.RawMessage `json:"items"`
	}
	if !d.strict(data, &list, node, start) {
		return nil
	}
	items := child(node, "items")
	var objects []runtime.Object
	for i, item := range list.Items {
		var at *yamlv3.Node
		if items != nil && i < len(items.Content) {
			at = resolve(items.Content[i])
		}
		objects = append(objects, d.object(item, at)...)
	}
	return objects
}

// strict decodes data into v and notes what is unknown, duplicate or of the wrong type.
func (d *document) strict(data []byte, v any, node *yamlv3.Node, start int) bool {
	strictErrs, err := kjson.UnmarshalStrict(data, v)
	if err != nil {
		path, at := failedValue(data, err), start
		if path != "" {
			at = lineOf(node, path, start)
			path += ": "
		}
		d.fail(at, "%s%s", path, plain(err))
		return false
	}
	for _, e := range strictErrs {
		var f kjson.FieldError
		if !errors.As(e, &f) {
			d.fail(start, "%v", e)
			continue
		}
		path := f.FieldPath()
		what := e.Error()
		if strings.HasPrefix(what, "unknown field") {
			parent, name := cutLast(path)
			if fields := fieldsAt(reflect.TypeOf(v), parent); len(fields) > 0 {
				what += lab.Suggest(name, fields)
			}
		}
		d.fail(lineOf(node, path, start), "%s", what)
	}
	return len(strictErrs) == 0
}

// typeMismatch is how encoding/json says that a value does not fit its field.
var typeMismatch = regexp.MustCompile(`^json: cannot unmarshal (.+?) into Go (?:struct field \S+|value) of type (\S+)$`)

// plain says a decoding error without Go's words.
func plain(err error) string {
	m := typeMismatch.FindStringSubmatch(err.Error())
	if m == nil {
		return strings.TrimPrefix(err.Error(), "json: ")
	}
	want := m[2]
	switch {
	case strings.HasPrefix(want, "int"), strings.HasPrefix(want, "uint"):
		want = "a whole number"
	case want == "bool":
		want = "true or false"
	case strings.HasPrefix(want, "[]"):
		want = "a list"
	case strings.HasPrefix(want, "map["):
		want = "a mapping"
	case want != "string":
		want = "a " + want[strings.LastIndex(want, ".")+1:]
	default:
		want = "a string"
	}
	got, hint := strings.Replace(m[1], "object", "a mapping", 1), ""
	if want == "a string" && (got == "bool" || strings.HasPrefix(got, "number")) {
		hint = ": put it in quotes" // yes, on and y are booleans to Kubernetes
	}
	return fmt.Sprintf("expected %s, got %s%s", want, got, hint)
}

func shorten(data []byte) string {
	const most = 40
	if len(data) > most {
		return string(data[:most]) + "..."
	}
	return string(data)
}
