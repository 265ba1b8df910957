// Package scenarios holds the lab's scenarios, one documented behaviour each, and the catalogue of claims they bear on.
package scenarios

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"

	"kplab/lab"
	"kplab/lab/script"
)

//go:embed *.txtar claims.yaml
var files embed.FS

// All returns every scenario, by name.
func All() ([]*script.Script, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var all []*script.Script
	var errs []error
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".txtar") {
			continue
		}
		text, err := files.ReadFile(e.Name())
		if err != nil {
			return nil, err
		}
		instances, err := script.Instances(e.Name(), string(text))
		all, errs = append(all, instances...), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// Select returns the scenarios of those names, in the order asked; none means all. A name that ends in .txtar is read as a file. The name of
// a scenario with parameters stands for all its instances.
func Select(names []string) ([]*script.Script, error) {
	all, err := All()
	if err != nil || len(names) == 0 {
		return all, err
	}
	var chosen []*script.Script
	var errs []error
	for _, name := range names {
		found, err := find(all, name)
		chosen, errs = append(chosen, found...), append(errs, err)
	}
	return chosen, errors.Join(errs...)
}

func find(all []*script.Script, name string) (found []*script.Script, err error) {
	if strings.HasSuffix(name, ".txtar") {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		return script.Instances(name, string(text))
	}
	var known []string
	for _, s := range all {
		if s.Name == name || strings.HasPrefix(s.Name, name+".") {
			found = append(found, s)
		}
		known = append(known, s.Name)
	}
	if len(found) > 0 {
		return found, nil
	}
	return nil, fmt.Errorf("unknown scenario %q%s", name, lab.Suggest(name, known))
}

// Claims returns the catalogue: what documents and bug reports say about the modes, in our words, with the source of each.
func Claims() ([]lab.Claim, error) {
	text, err := files.ReadFile("claims.yaml")
	if err != nil {
		return nil, err
	}
	var claims []lab.Claim
	if err := yaml.UnmarshalStrict(text, &claims); err != nil {
		return nil, fmt.Errorf("claims.yaml: %w", err)
	}
	return claims, nil
}
