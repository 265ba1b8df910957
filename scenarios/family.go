package scenarios

import "strings"

// Family is what a group of claims is about. The letters that a claim's id begins with name it.
type Family struct {
	Prefix string // "N"
	Name   string // "NodePorts and addresses"
}

// Families returns the families of the catalogue's claims, in its order.
func Families() []Family {
	return []Family{
		{"N", "NodePorts and addresses"},
		{"C", "conntrack"},
		{"I", "ipvs mode"},
		{"S", "switching modes"},
		{"K", "kernels, versions, start-up"},
		{"kk", "bug reports"},
		{"B", "cost"},
		{"R", "rollout"},
	}
}

// FamilyOf is the family of a claim, by its id. A claim of a family that is not known has its letters for a name.
func FamilyOf(id string) Family {
	prefix := id[:len(id)-len(strings.TrimLeft(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))]
	for _, f := range Families() {
		if f.Prefix == prefix {
			return f
		}
	}
	return Family{prefix, prefix}
}
