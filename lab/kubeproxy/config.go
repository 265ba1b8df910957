package kubeproxy

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"kplab/lab"
)

// Config is what a kube-proxy of the lab is configured with. Everything else has kube-proxy's own defaults.
type Config struct {
	Mode        lab.Mode
	NodeName    string
	ClusterCIDR string // ranges of pod addresses, one for each family, separated by a comma
	Kubeconfig  string // path as kube-proxy sees it
	// Set changes fields: dotted path -> value as YAML, null for kube-proxy's default. A list of texts may also be
	// separated by commas, and a text need not be quoted.
	Set map[string]string
}

const defaultMetricsAddress = "127.0.0.1:10249"

// fields is the KubeProxyConfiguration as a tree. It is not made from its Go type, whose zero values would be written
// too: a version that does not know one of the fields would then complain.
func (c Config) fields() (map[string]any, error) {
	tree := map[string]any{
		"apiVersion":         v1alpha1.SchemeGroupVersion.String(),
		"kind":               "KubeProxyConfiguration",
		"mode":               string(c.Mode),
		"hostnameOverride":   c.NodeName,
		"clusterCIDR":        c.ClusterCIDR,
		"clientConnection":   map[string]any{"kubeconfig": c.Kubeconfig},
		"bindAddress":        "0.0.0.0",
		"healthzBindAddress": "0.0.0.0:10256",
		"metricsBindAddress": defaultMetricsAddress,
		// nf_conntrack_max cannot be written in a network namespace that is not the first one: leave all as it is.
		"conntrack": map[string]any{
			"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
		},
		// The default, -999, is refused to a process without CAP_SYS_RESOURCE, and kube-proxy then tries again for 0.2 s.
		"oomScoreAdj": 0,
		// Defaulting turns 0 into 1 s (pkg/proxy/apis/config/v1alpha1/defaults.go).
		"iptables": map[string]any{"minSyncPeriod": "10ms"},
		"nftables": map[string]any{"minSyncPeriod": "10ms"},
		// ipvs mode repeats its whole sync, some hundred runs of ipset, every syncPeriod: an emulated machine would do little else.
		"ipvs":    map[string]any{"syncPeriod": "10m"},
		"logging": map[string]any{"verbosity": 2},
	}
	if c.Mode == lab.IPVS {
		// It logs the ends of its syncs at 4, and the other modes at 2.
		tree["logging"] = map[string]any{
			"verbosity": 2,
			"vmodule":   []any{map[string]any{"filePattern": "proxier", "verbosity": 4}},
		}
	}
	for _, path := range slices.Sorted(maps.Keys(c.Set)) {
		if err := set(tree, path, c.Set[path]); err != nil {
			return nil, err
		}
	}
	return tree, nil
}

// YAML is the KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1). The error of an unknown field in Set names the
// nearest one.
func (c Config) YAML() ([]byte, error) {
	tree, err := c.fields()
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(tree)
}

// Edit changes fields of a KubeProxyConfiguration that somebody else has written, as in [Config.Set], and leaves the others.
func Edit(config []byte, fields map[string]string) ([]byte, error) {
	var tree map[string]any
	if err := yaml.Unmarshal(config, &tree); err != nil {
		return nil, fmt.Errorf("KubeProxyConfiguration: %w", err)
	}
	for _, path := range slices.Sorted(maps.Keys(fields)) {
		if err := set(tree, path, fields[path]); err != nil {
			return nil, err
		}
	}
	return yaml.Marshal(tree)
}

// metricsAddress is where kube-proxy of this configuration can be asked for its metrics from its node.
func metricsAddress(tree map[string]any) string {
	address, _ := tree["metricsBindAddress"].(string)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return defaultMetricsAddress
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// set puts a value, as YAML, at a dotted path of the tree.
func set(tree map[string]any, path, value string) error {
	typ, err := fieldType(path)
	if err != nil {
		return err
	}
	v, err := parseValue(typ, value)
	if err != nil {
		return fmt.Errorf("field %s of KubeProxyConfiguration: value %q: %w", path, value, err)
	}
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		sub, ok := tree[name].(map[string]any)
		if !ok {
			sub = map[string]any{}
			tree[name] = sub
		}
		tree = sub
	}
	last := names[len(names)-1]
	if v == nil {
		delete(tree, last)
		return nil
	}
	tree[last] = v
	return nil
}

// fieldType is the Go type of a field of KubeProxyConfiguration.
func fieldType(path string) (reflect.Type, error) {
	typ := reflect.TypeFor[v1alpha1.KubeProxyConfiguration]()
	walked := ""
	for name := range strings.SplitSeq(path, ".") {
		for typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		switch {
		case typ.Kind() == reflect.Map && name != "":
			typ = typ.Elem()
		case typ.Kind() == reflect.Struct && !decodesItself(typ):
			fields := jsonFields(typ)
			t, ok := fields[name]
			if !ok {
				var known []string
				for _, k := range slices.Sorted(maps.Keys(fields)) {
					known = append(known, walked+k)
				}
				return nil, fmt.Errorf("KubeProxyConfiguration has no field %q%s", path, lab.Suggest(walked+name, known))
			}
			typ = t
		default:
			return nil, fmt.Errorf("KubeProxyConfiguration has no field %q: %s has no fields", path, strings.TrimSuffix(walked, "."))
		}
		walked += name + "."
	}
	return typ, nil
}

// jsonFields are the fields of a struct as JSON names them, with those of embedded structs but without apiVersion and kind.
func jsonFields(typ reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for f := range fieldsOf(typ) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Type == reflect.TypeFor[metav1.TypeMeta](), name == "-":
		case f.Anonymous && name == "":
			maps.Copy(fields, jsonFields(f.Type))
		case name != "":
			fields[name] = f.Type
		}
	}
	return fields
}

func fieldsOf(typ reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range typ.NumField() {
			if !yield(typ.Field(i)) {
				return
			}
		}
	}
}

func decodesItself(typ reflect.Type) bool {
	return reflect.PointerTo(typ).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// parseValue reads a value as YAML of a type, and returns it as a tree may hold it.
func parseValue(typ reflect.Type, value string) (any, error) {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	var v any
	if err := yaml.Unmarshal([]byte(value), &v); err != nil {
		v = value // a text that is not YAML, such as "[::1]:10249"
	}
	if v == nil && value != "" {
		return nil, nil
	}
	switch {
	case typ == reflect.TypeFor[metav1.Duration]():
		if _, err := time.ParseDuration(value); err != nil {
			return nil, fmt.Errorf("expected a duration such as 10ms, 30s or 1h: %w", err)
		}
		return value, nil
	case typ.Kind() == reflect.String:
		if text, ok := v.(string); ok {
			return text, nil
		}
		return value, nil // 1.16 is a text too
	case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.String:
		if _, ok := v.([]any); ok {
			break
		}
		list := []any{}
		for item := range strings.SplitSeq(value, ",") {
			if item = strings.TrimSpace(item); item != "" {
				list = append(list, item)
			}
		}
		return list, nil
	}
	if err := yaml.UnmarshalStrict([]byte(value), reflect.New(typ).Interface()); err != nil {
		return nil, fmt.Errorf("expected %s: %w", kindName(typ), err)
	}
	return v, nil
}

func kindName(typ reflect.Type) string {
	switch typ.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int32, reflect.Uint32, reflect.Int64, reflect.Float32:
		return "a number"
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "a mapping"
	}
	return "a " + typ.String()
}

// kubeconfig is a kubeconfig for an API server without authentication ("http://127.0.0.1:6443").
func kubeconfig(server string) ([]byte, error) {
	return yaml.Marshal(map[string]any{
		"apiVersion":      "v1",
		"kind":            "Config",
		"clusters":        []any{map[string]any{"name": "kplab", "cluster": map[string]any{"server": server}}},
		"users":           []any{map[string]any{"name": "kube-proxy", "user": map[string]any{}}},
		"contexts":        []any{map[string]any{"name": "kplab", "context": map[string]any{"cluster": "kplab", "user": "kube-proxy"}}},
		"current-context": "kplab",
	})
}
