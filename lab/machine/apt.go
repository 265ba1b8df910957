package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// keyring holds the keys of Debian's archive, wherever the machine's own sources point.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// apt drives the machine's own apt on a state of its own in one folder: another suite, no packages installed. The mirrors are
// the machine's, and apt checks signatures and hashes of all it fetches. It needs no root.
type apt struct {
	dir string
}

// newApt prepares apt for a suite in dir and fetches its index. Suites whose names end in -backports bring the suite that they
// belong to, and released suites their security updates.
func newApt(ctx context.Context, dir, suite string) (*apt, error) {
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("kernels and userlands come from Debian's archive through apt: %w (Debian packages apt and dpkg)", err)
		}
	}
	if _, err := os.Stat(keyring); err != nil {
		return nil, fmt.Errorf("the keys of Debian's archive are missing: %w (apt-get install debian-archive-keyring)", err)
	}
	a := &apt{dir: dir}
	for _, d := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, fmt.Errorf("prepare apt: %w", err)
		}
	}
	archive, err := findMirrors(ctx)
	if err != nil {
		return nil, err
	}
	for name, content := range map[string]string{
		"status":       "",
		"sources.list": sources(suite, archive),
		"apt.conf": fmt.Sprintf(`Dir::Etc::SourceList "%[1]s/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State::Lists "%[1]s/lists";
Dir::State::status "%[1]s/status";
Dir::State "%[1]s";
Dir::Cache "%[1]s";
Dir::Cache::Archives "%[1]s/archives";
Dir::Log "%[1]s";
Debug::NoLocking "true";
APT::Sandbox::User "";
APT::Architecture "%[2]s";
APT::Architectures { "%[2]s"; };
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::GzipIndexes "true";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::CNF::DefaultEnabled "false";
`, dir, debianArch()),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return nil, fmt.Errorf("prepare apt: %w", err)
		}
	}
	if _, err := a.run(ctx, "apt-get", "-q", "update", "--error-on=any"); err != nil {
		return nil, fmt.Errorf("fetch the index of Debian's %s: %w", suite, err)
	}
	return a, nil
}

// debianArch is Debian's name of the architecture, which is Go's for those that a VM can be of.
func debianArch() string { return runtime.GOARCH }

// run runs one of apt's tools in the state's folder and returns what it prints.
func (a *apt) run(ctx context.Context, argv ...string) (string, error) {
	return command(ctx, a.dir, []string{"APT_CONFIG=" + filepath.Join(a.dir, "apt.conf"), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"}, argv...)
}

// install downloads packages with all that they depend on and returns the archives' paths.
func (a *apt) install(ctx context.Context, packages ...string) ([]string, error) {
	argv := append([]string{"apt-get", "-q", "-y", "--download-only", "install"}, packages...)
	if _, err := a.run(ctx, argv...); err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(a.dir, "archives", "*.deb"))
}

// download downloads packages of exact versions ("name=version") alone and returns the archives' paths.
func (a *apt) download(ctx context.Context, packages ...string) ([]string, error) {
	old, err := filepath.Glob(filepath.Join(a.dir, "*.deb"))
	if err != nil {
		return nil, err
	}
	for _, f := range old { // of a download that failed halfway
		if err := os.Remove(f); err != nil {
			return nil, err
		}
	}
	argv := append([]string{"apt-get", "-q", "download"}, packages...)
	if _, err := a.run(ctx, argv...); err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(a.dir, "*.deb"))
}

// unpack passes the files of a package to extract as a tar stream.
func (a *apt) unpack(ctx context.Context, deb string, extract func(io.Reader) error) error {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
	}
	extractErr := extract(out)
	if extractErr == nil {
		_, extractErr = io.Copy(io.Discard, out) // tar's padding
	} else {
		_ = cmd.Process.Kill()
	}
	waitErr := cmd.Wait()
	switch {
	case extractErr != nil:
		return fmt.Errorf("unpack %s: %w", filepath.Base(deb), extractErr)
	case waitErr != nil:
		return fmt.Errorf("%q: %w: %s", cmd.Args, waitErr, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// command runs a program and returns its standard output; the error carries the command, its status and its standard error.
func command(ctx context.Context, dir string, env []string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = errors.Join(err, context.Cause(ctx))
		}
		said := strings.TrimSpace(stderr.String())
		if said == "" {
			said = strings.TrimSpace(stdout.String())
		}
		return "", fmt.Errorf("%q: %w: %s", argv, err, said)
	}
	return stdout.String(), nil
}
