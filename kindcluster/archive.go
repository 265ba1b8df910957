package kindcluster

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// layer is what an image holds: whole trees, and files by their path in the image.
type layer struct {
	trees []string
	files map[string]string // path in the image -> path on this machine
}

// writeArchive writes an image of one layer, as `docker save` does, that runs the entry point.
func writeArchive(path, tag string, entrypoint []string, l layer) (err error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".layer-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	layerFile := filepath.Join(dir, "layer.tar")
	digest, err := l.write(layerFile)
	if err != nil {
		return fmt.Errorf("layer of %s: %w", tag, err)
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": entrypoint, "Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{tag}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"config.json": config, "manifest.json": manifest} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	staged := filepath.Join(dir, "image.tar")
	all := layer{files: map[string]string{}}
	for _, name := range []string{"manifest.json", "config.json", "layer.tar"} {
		all.files[name] = filepath.Join(dir, name)
	}
	if _, err := all.write(staged); err != nil {
		return err
	}
	return os.Rename(staged, path)
}

// write writes a tar file and returns its SHA-256.
func (l layer) write(path string) (digest string, err error) {
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	w := tar.NewWriter(io.MultiWriter(f, sum))
	for _, root := range l.trees {
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil || p == root {
				return err
			}
			name, err := filepath.Rel(root, p)
			if err != nil {
				return err
			}
			return add(w, name, p)
		})
		if err != nil {
			return "", err
		}
	}
	for name, p := range l.files {
		if err := add(w, name, p); err != nil {
			return "", err
		}
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), f.Close()
}

func add(w *tar.Writer, name, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name, h.Uid, h.Gid, h.Uname, h.Gname = name, 0, 0, "", ""
	if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}
