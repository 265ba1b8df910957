package lab

import (
	"fmt"
	"strings"
)

// Mode is a kube-proxy mode as --proxy-mode spells it.
type Mode string

// The three Linux modes. Their order is the order of the matrix's columns.
const (
	IPVS     Mode = "ipvs"
	IPTables Mode = "iptables"
	NFTables Mode = "nftables"
)

// NoKubeProxy stands in for the mode where something else than kube-proxy implements Services. It is none of [Modes]: nothing is started
// in it, and it is found only in a cluster that existed before.
const NoKubeProxy Mode = "none"

// Modes lists all modes in the order of the matrix's columns.
func Modes() []Mode { return []Mode{IPVS, IPTables, NFTables} }

// ParseMode reads a mode's name; the error names the nearest one.
func ParseMode(s string) (Mode, error) {
	for _, m := range Modes() {
		if string(m) == s {
			return m, nil
		}
	}
	return "", fmt.Errorf("unknown mode %q%s", s, Suggest(s, []string{"ipvs", "iptables", "nftables"}))
}

// Suggest returns `: did you mean "x"?` for the nearest of known, or `: known are a, b` when none is near.
func Suggest(word string, known []string) string {
	best, bestDist := "", 4
	for _, k := range known {
		if d := editDistance(strings.ToLower(word), strings.ToLower(k)); d < bestDist && d < len(k) {
			best, bestDist = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf(": did you mean %q?", best)
	}
	return ": known are " + strings.Join(known, ", ")
}

// editDistance is Levenshtein's distance between a and b in bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next := min(row[j]+1, row[j-1]+1, diagonal+cost)
			diagonal, row[j] = row[j], next
		}
	}
	return row[len(b)]
}
