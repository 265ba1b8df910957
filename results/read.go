package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Read reads a run from its folder or from its run.json. It reads every schema up to [Schema]; a newer one, a file that
// is not a run and a folder without run.json are errors that say what to do.
func Read(path string) (*Run, error) {
	file := path
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		file = filepath.Join(path, runFile)
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && file != path {
		return nil, fmt.Errorf("%s holds no run: it has no %s: %w", path, runFile, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read a run: %w", err)
	}
	run, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s %w", file, err)
	}
	run.Dir = filepath.Dir(file)
	if run.alone() {
		run.dropEvidence()
	}
	return run, nil
}

// alone reports whether run.json is all there is, as of a run that is published.
func (r *Run) alone() bool {
	for _, name := range []string{cellsDir, eventsFile, shardsDir} {
		if _, err := os.Stat(filepath.Join(r.Dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

// dropEvidence has a run name no file that is not there.
func (r *Run) dropEvidence() {
	for i := range r.Cells {
		r.Cells[i].Evidence = []string{}
		for j := range r.Cells[i].Repeats {
			r.Cells[i].Repeats[j].Evidence = []string{}
		}
	}
}

// head is what every schema of run.json begins with.
type head struct {
	Schema int `json:"schema"`
}

// isRun reports whether text is a run.json of any schema.
func isRun(text []byte) bool {
	var h head
	return json.Unmarshal(text, &h) == nil && h.Schema >= 1
}

// decode reads run.json. Its errors continue a sentence that begins with the file's name.
func decode(text []byte) (*Run, error) {
	var h head
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, fmt.Errorf("is not a kplab run: %w", err)
	}
	if h.Schema < 1 {
		return nil, errors.New(`is not a kplab run: it has no "schema"`)
	}
	if h.Schema > Schema {
		return nil, errNewer(h.Schema)
	}
	run := new(Run)
	if err := json.Unmarshal(text, run); err != nil {
		return nil, fmt.Errorf("is damaged: %w", err)
	}
	return run, nil
}

func errNewer(schema int) error {
	return fmt.Errorf("has schema %d, and this kplab reads up to %d: use a newer kplab", schema, Schema)
}
