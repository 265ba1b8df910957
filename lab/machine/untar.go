package machine

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// untar writes the entries of a tar stream below root. place says where an entry goes, relative and clean, or "" for nowhere.
// Owners and set-id bits are dropped: a tree must look the same whoever fetched it.
func untar(r io.Reader, root *os.Root, place func(name string) string) error {
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		name := place(strings.TrimPrefix(path.Clean("/"+h.Name), "/"))
		if name == "" || name == "." {
			continue
		}
		if err := untarEntry(tr, h, root, name, place); err != nil {
			return fmt.Errorf("extract %s: %w", h.Name, err)
		}
	}
}

func untarEntry(r io.Reader, h *tar.Header, root *os.Root, name string, place func(string) string) error {
	if h.Typeflag == tar.TypeDir {
		return root.MkdirAll(name, 0o755)
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, fs.FileMode(h.Mode)&0o777|0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(place(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")), name)
	default:
		return nil // devices and pipes: none of what a machine is made of has them
	}
}
