package results

import (
	"fmt"
	"slices"
	"strings"
)

// attribute is one thing by which two runs' cells, or figures, are told apart.
type attribute[T any] struct {
	name string
	of   func(T) string
}

// Subject is what differs between the settings of two runs: what their comparison is about.
type Subject struct {
	What string `json:"what"` // "kube-proxy", "kernel", "nft", ...
	A    string `json:"a"`
	B    string `json:"b"`
	// Where says in which part of the runs, "" for everywhere: "ipvs / netns".
	Where string `json:"where,omitempty"`
}

// matcher pairs what two runs have in common.
//
// Attribute by attribute, values that both runs have are matched with each other. Where they share none and each has one, that is
// the subject of the comparison, and the one is matched with the other. Where they share none and one has several, nobody can say
// which belongs to which: nothing is matched, and a note says so.
type matcher[T any] struct {
	key          func(T) string // of what is left when the attributes are matched
	pairs        []pair[T]
	onlyA, onlyB []T
	subjects     []Subject
	notes        []string
}

type pair[T any] struct {
	a, b  T
	label string // the attributes' values that they have in common
}

func (m *matcher[T]) match(as, bs []T, attributes []attribute[T], path []string) {
	if len(attributes) == 0 {
		m.pair(as, bs, strings.Join(path, " / "))
		return
	}
	if len(as) == 0 || len(bs) == 0 {
		m.onlyA, m.onlyB = append(m.onlyA, as...), append(m.onlyB, bs...)
		return
	}
	at, rest := attributes[0], attributes[1:]
	va, vb := valuesOf(as, at), valuesOf(bs, at)
	var common []string
	for _, v := range va {
		if slices.Contains(vb, v) {
			common = append(common, v)
		}
	}
	switch {
	case len(common) > 0:
		for _, v := range common {
			next := path
			if v != "" {
				next = append(slices.Clone(path), v)
			}
			m.match(having(as, at, v), having(bs, at, v), rest, next)
		}
		lacks := func(x T) bool { return !slices.Contains(common, at.of(x)) }
		for _, x := range as {
			if lacks(x) {
				m.onlyA = append(m.onlyA, x)
			}
		}
		for _, x := range bs {
			if lacks(x) {
				m.onlyB = append(m.onlyB, x)
			}
		}
	case len(va) == 1 && len(vb) == 1:
		m.subjects = append(m.subjects, Subject{at.name, va[0], vb[0], strings.Join(path, " / ")})
		m.match(as, bs, rest, path)
	default:
		where := ""
		if len(path) > 0 {
			where = " (" + strings.Join(path, " / ") + ")"
		}
		m.notes = append(m.notes, fmt.Sprintf("A has %s %s and B has %s%s: they share none, and with several it is not clear which belongs to which, so none is compared",
			at.name, strings.Join(va, ", "), strings.Join(vb, ", "), where))
		m.onlyA, m.onlyB = append(m.onlyA, as...), append(m.onlyB, bs...)
	}
}

func (m *matcher[T]) pair(as, bs []T, label string) {
	taken := map[string]bool{}
	for _, a := range as {
		i := slices.IndexFunc(bs, func(b T) bool { return m.key(a) == m.key(b) })
		if i < 0 {
			m.onlyA = append(m.onlyA, a)
			continue
		}
		taken[m.key(a)] = true
		m.pairs = append(m.pairs, pair[T]{a, bs[i], label})
	}
	for _, b := range bs {
		if !taken[m.key(b)] {
			m.onlyB = append(m.onlyB, b)
		}
	}
}

func valuesOf[T any](list []T, at attribute[T]) (values []string) {
	for _, x := range list {
		values = appendNew(values, at.of(x))
	}
	return values
}

func having[T any](list []T, at attribute[T], value string) (out []T) {
	for _, x := range list {
		if at.of(x) == value {
			out = append(out, x)
		}
	}
	return out
}
