package script

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rsc.io/script"

	"kplab/lab"
)

// conditions are what may guard a line. Each evaluates against the cell's setting.
func (s *session) conditions() map[string]script.Cond {
	all := map[string]script.Cond{
		"mode": s.oneOf("the cell's proxy mode", []string{"ipvs", "iptables", "nftables"},
			func() string { return string(s.Cell.Mode) }),
		"substrate": s.oneOf("what the env is made of", []string{"netns", "kind", lab.ClusterSubstrate},
			func() string { return s.Cell.Substrate }),
		"userland": s.oneOf("whose tools kube-proxy calls", []string{"debian-12", "debian-13", "host"},
			func() string { return s.Cell.Userland.Name }),
		"accelerator": s.oneOf("what executes the kernel", []string{"host", "kvm", "tcg"},
			func() string { return s.Machine.Accelerator }),
		"kernel": s.version("the kernel's release, compared: [kernel:>=6.1]",
			func() string { return s.Machine.Release }),
		"kube-proxy": s.version("kube-proxy's version, compared: [kube-proxy:<1.37]",
			func() string { return s.Cell.KubeProxy }),
		"feature": condition{"a kernel feature, as probed by using it: [feature:ip_vs]", func(name string) (bool, error) {
			if s.dry {
				return true, nil
			}
			has, known := s.Machine.Features[name]
			if !known {
				names := make([]string, 0, len(s.Machine.Features))
				for n := range s.Machine.Features {
					names = append(names, n)
				}
				slices.Sort(names)
				return false, fmt.Errorf("unknown feature %q%s", name, lab.Suggest(name, names))
			}
			return has, nil
		}},
	}
	if s.script != nil {
		for _, p := range s.script.Parameters {
			all[p.Name] = s.oneOf("the value of the parameter", p.Values, func() string { return s.script.values[p.Name] })
		}
	}
	return all
}

// condition is a prefix condition: [name:suffix].
type condition struct {
	summary string
	eval    func(suffix string) (bool, error)
}

func (c condition) Eval(_ *script.State, suffix string) (bool, error) { return c.eval(suffix) }
func (c condition) Usage() *script.CondUsage {
	return &script.CondUsage{Summary: c.summary, Prefix: true}
}

func (s *session) oneOf(summary string, known []string, actual func() string) script.Cond {
	return condition{summary + ": " + strings.Join(known, ", "), func(word string) (bool, error) {
		if !slices.Contains(known, word) {
			return false, fmt.Errorf("unknown value %q%s", word, lab.Suggest(word, known))
		}
		return !s.dry && actual() == word, nil
	}}
}

func (s *session) version(summary string, actual func() string) script.Cond {
	return condition{summary, func(suffix string) (bool, error) {
		op, want, err := splitComparison(suffix)
		if err != nil {
			return false, err
		}
		if s.dry {
			return true, nil
		}
		return compare(CompareVersions(actual(), want), op), nil
	}}
}

// splitComparison reads ">=6.1".
func splitComparison(s string) (op, version string, err error) {
	for _, op := range []string{">=", "<=", "!=", ">", "<", "="} {
		if v, ok := strings.CutPrefix(s, op); ok {
			if len(numbers(v)) == 0 {
				return "", "", fmt.Errorf("%q is not a version: expected numbers, as in %s6.1", v, op)
			}
			return op, v, nil
		}
	}
	return "", "", fmt.Errorf("%q: expected a comparison, as in >=6.1 or <1.37", s)
}

func compare(sign int, op string) bool {
	switch op {
	case ">=":
		return sign >= 0
	case "<=":
		return sign <= 0
	case ">":
		return sign > 0
	case "<":
		return sign < 0
	case "!=":
		return sign != 0
	default:
		return sign == 0
	}
}

// CompareVersions compares the leading numbers of two versions or kernel releases, as far as b has any: 6.1.0-39 equals 6.1.
func CompareVersions(a, b string) int {
	x, y := numbers(a), numbers(b)
	for i, n := range y {
		m := 0
		if i < len(x) {
			m = x[i]
		}
		if m != n {
			if m < n {
				return -1
			}
			return 1
		}
	}
	return 0
}

// numbers reads the dotted numbers that a version begins with.
func numbers(v string) (n []int) {
	for part := range strings.SplitSeq(strings.TrimPrefix(v, "v"), ".") {
		digits := part
		if i := strings.IndexFunc(part, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
			digits = part[:i]
		}
		x, err := strconv.Atoi(digits)
		if err != nil {
			return n
		}
		n = append(n, x)
		if digits != part {
			return n
		}
	}
	return n
}

// checkCondition checks a condition's name and suffix without a setting.
func checkCondition(known map[string]script.Cond, tag string) error {
	prefix, suffix, ok := strings.Cut(tag, ":")
	cond := known[prefix]
	if cond == nil || !ok {
		names := make([]string, 0, len(known))
		for n := range known {
			names = append(names, n+":")
		}
		slices.Sort(names)
		return fmt.Errorf("unknown condition [%s]%s", tag, lab.Suggest(prefix+":", names))
	}
	if _, err := cond.Eval(nil, suffix); err != nil {
		return fmt.Errorf("condition [%s]: %w", tag, err)
	}
	return nil
}
