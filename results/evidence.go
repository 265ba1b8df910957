package results

import (
	"fmt"
	"hash/fnv"
	"path"
	"strings"
)

const (
	maxName  = 200 // bytes in one element of a path; file systems allow 255
	maxDepth = 8   // folders below a cell's
)

// safePath turns the name that a machine gives its evidence into a relative path that cannot leave the folder it is
// joined to, shows in a plain `ls`, and suits archives of CI systems (GitHub's upload-artifact refuses " : < > | * ?).
func safePath(name string) string {
	var elements []string
	for e := range strings.SplitSeq(name, "/") {
		if e == "" || e == "." || e == ".." {
			continue
		}
		elements = append(elements, safeName(e))
	}
	if len(elements) > maxDepth {
		elements = append(elements[:maxDepth-1], safeName(strings.Join(elements[maxDepth-1:], "_")))
	}
	if len(elements) == 0 {
		return "unnamed"
	}
	return path.Join(elements...)
}

// safeName turns s into one visible element of a path.
func safeName(s string) string {
	safe := strings.Map(func(r rune) rune {
		if r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-+=@,", r)) {
			return r
		}
		return '_'
	}, s)
	if strings.HasPrefix(safe, ".") {
		safe = "_" + safe[1:]
	}
	if len(safe) > maxName {
		h := fnv.New32a()
		h.Write([]byte(s))
		safe = fmt.Sprintf("%s-%08x", safe[:maxName-9], h.Sum32())
	}
	return safe
}

// shelf gives each piece of evidence a path of its own within the run's folder.
type shelf struct {
	owners  map[string]string // path of a file -> folder and name as the machine gave them
	folders map[string]bool   // folders on the way to those files
}

func newShelf() *shelf { return &shelf{owners: map[string]string{}, folders: map[string]bool{}} }

// place returns the path for the evidence that a machine calls name: the same again for the same name, and a path of
// its own for another name that looks the same once it is safe.
func (s *shelf) place(folder, name string) string {
	owner := folder + "\x00" + name
	base := safePath(name)
	if s.belowFile(folder, base) {
		base = strings.ReplaceAll(base, "/", "_")
	}
	ext := path.Ext(base)
	for n := 1; ; n++ {
		p := path.Join(folder, base)
		if n > 1 {
			p = path.Join(folder, fmt.Sprintf("%s-%d%s", strings.TrimSuffix(base, ext), n, ext))
		}
		if taken, ok := s.owners[p]; s.folders[p] || ok && taken != owner {
			continue
		}
		s.owners[p] = owner
		for d := path.Dir(p); d != "."; d = path.Dir(d) {
			s.folders[d] = true
		}
		return p
	}
}

// belowFile reports whether a folder that name needs inside folder is a file already.
func (s *shelf) belowFile(folder, name string) bool {
	for d := path.Dir(name); d != "."; d = path.Dir(d) {
		if _, ok := s.owners[path.Join(folder, d)]; ok {
			return true
		}
	}
	return false
}
