package script

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
	"rsc.io/script"

	"kplab/lab"
	"kplab/lab/manifest"
)

// Script is a scenario as read and checked by [Parse].
type Script struct {
	Name    string // base name of the file without .txtar
	File    string // as given to Parse
	Summary string // the first comment line
	Doc     string // the whole first comment
	Text    string // the file

	Claims       []lab.Claim   // those it bears on, in order; Source and Text are empty for ids of the catalogue
	Requirements []Requirement // what its cells need
	FloorOff     bool          // its cells also run below their mode's floor
	Parameters   []Parameter   // what its instances differ in
	Steps        []Step        // every command, in order

	comment []string          // the script's lines
	files   map[string][]byte // manifests by name
	lines   map[string]int    // the line on which each manifest begins
	values  map[string]string // of its parameters, in an instance
}

// Parameter is a `parameter` line: the scenario is one for each value.
type Parameter struct {
	Name   string
	Values []string
}

// Requirement is a `requires` line: the scenario's cells are skipped where the condition does not hold.
type Requirement struct {
	Conditions []string // guards of the line, as written: "mode:nftables", "!kernel:>=6.1"
	Needs      string   // the condition needed: "feature:ip_vs", "kube-proxy:>=1.37"
	Reason     string
}

// Step is one command of the script, as written but for its variables: those of an instance's parameters are its own.
type Step struct {
	Line       int
	Conditions []string
	Command    string
	Args       []string
}

// guards matches the conditions before a command.
var guards = regexp.MustCompile(`^\s*((?:\[[^\]\s]+\]\s*)*)(.*)$`)

// Parse reads a scenario and checks every line of it without running anything: commands, arguments, conditions, manifests.
// All errors are returned, joined, each with file:line.
func Parse(file, text string) (*Script, error) { return parse(file, text, nil) }

// parse reads a scenario, or the instance that has these values for the parameters.
func parse(file, text string, values map[string]string) (*Script, error) {
	archive := txtar.Parse([]byte(text))
	s := &Script{
		Name:    strings.TrimSuffix(filepath.Base(file), ".txtar"),
		File:    file,
		Text:    text,
		comment: strings.Split(strings.TrimSuffix(string(archive.Comment), "\n"), "\n"),
		files:   map[string][]byte{},
		lines:   map[string]int{},
		values:  values,
	}
	for i, line := range s.comment {
		if !strings.HasPrefix(line, "#") {
			break
		}
		doc := strings.TrimSpace(strings.TrimPrefix(line, "#"))
		if i == 0 {
			s.Summary = strings.TrimSuffix(doc, ".")
		}
		s.Doc += doc + "\n"
	}
	var errs []error
	if s.Summary == "" {
		errs = append(errs, fmt.Errorf("%s:1: expected a comment, # and a sentence that says what the scenario shows", file))
	}
	s.readParameters()
	errs = append(errs, s.indexFiles(archive)...)
	errs = append(errs, s.lint()...)
	return s, errors.Join(errs...)
}

// Instances reads a scenario as [Parse] does and returns it once for each combination of its parameters' values: mode-switch.ipvs.restart,
// ... It is itself the only one if it has no parameters.
func Instances(file, text string) ([]*Script, error) {
	s, err := Parse(file, text)
	if err != nil {
		return nil, err
	}
	if len(s.Parameters) == 0 {
		return []*Script{s}, nil
	}
	combinations := []map[string]string{{}}
	for _, p := range s.Parameters {
		var more []map[string]string
		for _, c := range combinations {
			for _, v := range p.Values {
				with := maps.Clone(c)
				with[p.Name] = v
				more = append(more, with)
			}
		}
		combinations = more
	}
	var all []*Script
	for _, values := range combinations {
		instance, err := parse(file, text, values)
		if err != nil {
			return nil, err
		}
		for _, p := range s.Parameters {
			instance.Name += "." + values[p.Name]
		}
		all = append(all, instance)
	}
	return all, nil
}

// Values are an instance's parameters, nil for a scenario without any.
func (s *Script) Values() map[string]string { return maps.Clone(s.values) }

// parameterLine is read before the other lines, whose conditions and variables may be about parameters.
var parameterLine = regexp.MustCompile(`^parameter\s+([a-z][a-z0-9-]*)((?:\s+[a-z0-9-]+)+)\s*$`)

func (s *Script) readParameters() {
	for _, line := range s.comment {
		if m := parameterLine.FindStringSubmatch(line); m != nil {
			s.Parameters = append(s.Parameters, Parameter{m[1], strings.Fields(m[2])})
		}
	}
}

// indexFiles keeps the manifests with the line each begins on, and decodes them once.
func (s *Script) indexFiles(archive *txtar.Archive) (errs []error) {
	vars, err := (&session{dry: true}).addressVariables()
	if err != nil {
		return []error{err}
	}
	text := strings.Split(s.Text, "\n")
	at := len(s.comment)
	for _, f := range archive.Files {
		for at < len(text) && !strings.HasPrefix(text[at], "-- "+f.Name) {
			at++
		}
		at++ // the marker's own line; what follows is the file's first line, counted from 1
		if _, dup := s.files[f.Name]; dup {
			errs = append(errs, fmt.Errorf("%s:%d: file %s stands in the archive twice", s.File, at, f.Name))
		}
		s.files[f.Name], s.lines[f.Name] = f.Data, at+1
		if isManifest(f.Name) {
			text, err := expandAddresses(f.Data, vars)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s:%d (%s): %w", s.File, at+1, f.Name, err))
				continue
			}
			if _, err := manifest.Decode(s.File, at+1, text); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

func isManifest(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") || strings.HasSuffix(name, ".json")
}

// lint runs every line with commands that only read their arguments, whatever its conditions say.
func (s *Script) lint() (errs []error) {
	sess := &session{script: s, dry: true}
	engine := sess.engine()
	state, err := script.NewState(context.Background(), "/", []string{})
	if err != nil {
		return []error{err}
	}
	sess.state = state
	if err := sess.setVariables(); err != nil {
		return []error{err}
	}
	for i, line := range s.comment {
		for _, v := range variable.FindAllStringSubmatch(line, -1) {
			if _, ok := state.LookupEnv(v[1]); !ok && !strings.HasPrefix(line, "#") {
				vars, _ := sess.addressVariables()
				errs = append(errs, fmt.Errorf("%s:%d: %w", s.File, i+1, unknownVariable(v[1], vars)))
			}
		}
		m := guards.FindStringSubmatch(line)
		conds := strings.Fields(strings.NewReplacer("[", " ", "]", " ").Replace(m[1]))
		for _, c := range conds {
			if err := checkCondition(engine.Conds, strings.TrimPrefix(c, "!")); err != nil {
				errs = append(errs, fmt.Errorf("%s:%d: %w", s.File, i+1, err))
			}
		}
		sess.at, sess.conds = i+1, conds
		name, _, _ := strings.Cut(strings.TrimLeft(m[2], "!? "), " ")
		if name != "" && !strings.HasPrefix(name, "#") && engine.Cmds[name] == nil {
			known := make([]string, 0, len(engine.Cmds))
			for k := range engine.Cmds {
				known = append(known, k)
			}
			slices.Sort(known)
			errs = append(errs, fmt.Errorf("%s:%d: unknown command %q%s", s.File, i+1, name, lab.Suggest(name, known)))
			continue
		}
		// "?": that the command only reads its arguments is neither success nor failure.
		err := engine.Execute(state, s.File, bufio.NewReader(strings.NewReader(strings.TrimLeft(m[2], "!? "))), io.Discard)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", s.File, i+1, bare(err)))
		}
	}
	return errs
}

// bare strips the position that the engine adds: it was given one line at a time.
func bare(err error) error {
	var cmd *script.CommandError
	if errors.As(err, &cmd) {
		return fmt.Errorf("%s: %w", cmd.Op, cmd.Err)
	}
	if _, rest, ok := strings.Cut(err.Error(), ":1: "); ok {
		return errors.New(rest)
	}
	return err
}

// addClaim adds a claim to those that the script names.
func (s *Script) addClaim(c lab.Claim) {
	for _, have := range s.Claims {
		if have.ID == c.ID {
			return
		}
	}
	s.Claims = append(s.Claims, c)
}

// KubeProxies returns the versions that the script itself starts, beside the cell's.
func (s *Script) KubeProxies() (versions []string) {
	for _, step := range s.Steps {
		for _, a := range step.Args {
			if v, ok := strings.CutPrefix(a, "version="); ok && (step.Command == "kube-proxy" || step.Command == "daemonset") && !slices.Contains(versions, v) {
				versions = append(versions, v)
			}
		}
	}
	return versions
}
