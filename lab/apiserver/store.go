package apiserver

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// key names an object within its resource.
type key = types.NamespacedName

func keyOf(o object) key { return key{Namespace: o.GetNamespace(), Name: o.GetName()} }

func compareKeys(a, b key) int {
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// entry is one version of an object. Neither it nor its object ever changes, so that they are read without a lock.
type entry struct {
	object  object // with apiVersion, kind and resourceVersion
	key     key
	version uint64
	encodings
}

func newEntry(o object, version uint64) *entry {
	return &entry{object: o, key: keyOf(o), version: version}
}

// change is one step of a resource's history.
type change struct {
	version uint64
	old     *entry // nil: created
	new     *entry // nil: deleted
	gone    func() *entry
}

// table holds the objects of a resource and their latest changes.
type table struct {
	objects map[key]*entry
	history []*change // by version
	dropped uint64    // version of the latest change that history no longer has
	changed chan struct{}
}

// store holds all objects, under one resourceVersion. Locks: mutex for everything; readers take it shared.
type store struct {
	mutex   sync.RWMutex
	version uint64 // of the latest change
	keep    int    // changes in each table's history
	tables  map[*resource]*table
	indexes
	allocators
	counters changeCounters
}

func newStore(c Config) *store {
	s := &store{
		keep:       c.History,
		tables:     map[*resource]*table{},
		indexes:    newIndexes(),
		allocators: newAllocators(c),
	}
	for _, r := range resources {
		s.tables[r] = &table{objects: map[key]*entry{}, changed: make(chan struct{})}
	}
	for _, o := range initialObjects(c) {
		setCreated(o.object)
		s.put(o.resource, o.object)
	}
	return s
}

// get returns the stored version of an object or nil. The caller holds the mutex.
func (s *store) get(r *resource, k key) *entry { return s.tables[r].objects[k] }

// put stores o, which nobody else may hold, as a new version. The caller holds the mutex and then calls announce.
func (s *store) put(r *resource, o object) {
	s.version++
	o.SetResourceVersion(formatVersion(s.version))
	o.GetObjectKind().SetGroupVersionKind(r.gvk())
	s.record(r, keyOf(o), newEntry(o, s.version))
}

// remove deletes an object that is stored. The caller holds the mutex and then calls announce.
func (s *store) remove(r *resource, k key) {
	s.version++
	s.record(r, k, nil)
}

func (s *store) record(r *resource, k key, e *entry) {
	t := s.tables[r]
	c := &change{version: s.version, old: t.objects[k], new: e}
	c.gone = sync.OnceValue(func() *entry { return atVersion(c.old, c.version) })
	if e == nil {
		delete(t.objects, k)
	} else {
		t.objects[k] = e
	}
	if len(t.history) > s.keep+s.keep/4 {
		// Not at each change, and into a fresh slice, since watches may still read the old one.
		t.dropped = t.history[len(t.history)-s.keep-1].version
		t.history = slices.Clone(t.history[len(t.history)-s.keep:])
	}
	t.history = append(t.history, c)
	s.index(r, c)
	s.counters.count(c)
}

// atVersion is the last state of an object that went away, or out of a watch's sight, at a version.
func atVersion(e *entry, version uint64) *entry {
	o := e.object.DeepCopyObject().(object)
	o.SetResourceVersion(formatVersion(version))
	return newEntry(o, version)
}

// announce wakes the watches of resources that changed. The caller holds the mutex.
func (s *store) announce(changed ...*resource) {
	for _, r := range changed {
		t := s.tables[r]
		close(t.changed)
		t.changed = make(chan struct{})
	}
}

// list returns the objects that sel picks, sorted by namespace and name, and the version at which they are so.
func (s *store) list(sel selector) ([]*entry, uint64) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.listLocked(sel), s.version
}

func (s *store) listLocked(sel selector) []*entry {
	var entries []*entry
	for _, e := range s.tables[sel.resource].objects {
		if sel.matches(e) {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b *entry) int { return compareKeys(a.key, b.key) })
	return entries
}

// errExpired says that a watch asks for changes that history no longer has.
var errExpired = errors.New("too old resource version")

// since returns the changes of a resource after a version, the version up to which they are complete, and a channel that
// is closed at the next change. The error is errExpired when some of them are no longer kept.
func (s *store) since(r *resource, version uint64) ([]*change, uint64, <-chan struct{}, error) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	t := s.tables[r]
	if version < t.dropped {
		return nil, s.version, nil, errExpired
	}
	first, _ := slices.BinarySearchFunc(t.history, version+1, func(c *change, v uint64) int { return cmp.Compare(c.version, v) })
	return t.history[first:], s.version, t.changed, nil
}

func formatVersion(v uint64) string { return strconv.FormatUint(v, 10) }

// indexes find what the EndpointSlice generator needs.
type indexes struct {
	podsByLabel        map[labelKey]map[key]struct{} // under each of their labels
	servicesBySelector map[labelKey]map[key]struct{} // under one label of their selector
	slicesByService    map[key]map[key]struct{}
}

// labelKey is a label within a namespace.
type labelKey struct{ namespace, label, value string }

func newIndexes() indexes {
	return indexes{
		podsByLabel:        map[labelKey]map[key]struct{}{},
		servicesBySelector: map[labelKey]map[key]struct{}{},
		slicesByService:    map[key]map[key]struct{}{},
	}
}

func (x *indexes) index(r *resource, c *change) {
	switch r {
	case pods:
		reindex(x.podsByLabel, c, func(o object) []labelKey {
			var keys []labelKey
			for label, value := range o.GetLabels() {
				keys = append(keys, labelKey{o.GetNamespace(), label, value})
			}
			return keys
		})
	case services:
		reindex(x.servicesBySelector, c, func(o object) []labelKey {
			if k, ok := selectorKey(o); ok {
				return []labelKey{k}
			}
			return nil
		})
	case endpointSlices:
		reindex(x.slicesByService, c, func(o object) []key {
			return []key{{Namespace: o.GetNamespace(), Name: o.GetLabels()[discoveryv1.LabelServiceName]}}
		})
	}
}

func reindex[K comparable](m map[K]map[key]struct{}, c *change, keys func(object) []K) {
	if c.old != nil {
		for _, under := range keys(c.old.object) {
			delete(m[under], c.old.key)
			if len(m[under]) == 0 {
				delete(m, under)
			}
		}
	}
	if c.new != nil {
		for _, under := range keys(c.new.object) {
			if m[under] == nil {
				m[under] = map[key]struct{}{}
			}
			m[under][c.new.key] = struct{}{}
		}
	}
}
