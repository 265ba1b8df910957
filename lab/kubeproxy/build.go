package kubeproxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

const (
	kubernetesModule = "k8s.io/kubernetes"
	progressEvery    = 10 * time.Second
)

// build builds a version into scratch from the Go module. An error that wraps errUnavailable means that there is no such
// version of the module, or no way to it.
func (s *Source) build(ctx context.Context, version, scratch string, say progress) (origin string, err error) {
	return compile(ctx, version, scratch, s.arch(), filepath.Join(scratch, binaryFile), say, "kube-proxy")
}

// BuildCommands builds commands of a Kubernetes release ("kubeadm", "kubelet", ...) from the Go module for this machine, and puts
// them into a folder that exists. scratch is an empty folder of the caller's. say takes progress lines.
func BuildCommands(ctx context.Context, version, scratch, folder string, say func(string), commands ...string) error {
	_, err := compile(ctx, version, scratch, runtime.GOARCH, folder+"/", func(format string, a ...any) { say(fmt.Sprintf(format, a...)) }, commands...)
	return err
}

// compile builds commands of a version in scratch; output is as `go build -o` takes it. `go install` refuses a module with replace
// directives, and k8s.io/kubernetes replaces its staging modules (k8s.io/api, ...) by folders that the module does not
// contain; so a module is made that requires both.
func compile(ctx context.Context, version, scratch, arch, output string, say progress, commands ...string) (origin string, err error) {
	toolchain, err := goCommand{dir: scratch}.run(ctx, "env", "GOVERSION")
	if err != nil {
		return "", err
	}
	say("fetching the module %s v%s", kubernetesModule, version)
	goMod, err := kubernetesGoMod(ctx, version, scratch)
	if err != nil {
		return "", err
	}
	own, err := scratchGoMod(version, goMod)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(scratch, "build")
	tmp := filepath.Join(scratch, "tmp") // the compiler's, so that it goes with scratch
	for _, d := range []string{dir, tmp} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return "", err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), own, 0o644); err != nil {
		return "", err
	}
	say("building with %s: about %d minutes on 2 cores the first time", strings.TrimSpace(toolchain), 2+len(commands))
	var compiled atomic.Int64
	stop := every(progressEvery, func() { say("building: %d packages compiled", compiled.Load()) })
	compiler := goCommand{dir, []string{"GOTMPDIR=" + tmp, "GOOS=linux", "GOARCH=" + arch, "CGO_ENABLED=0"}, &compiled}
	args := []string{"build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", linkerFlags(version), "-o", output}
	for _, c := range commands {
		args = append(args, kubernetesModule+"/cmd/"+c)
	}
	_, err = compiler.run(ctx, args...)
	stop()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s@v%s built by %s", kubernetesModule, version, strings.TrimSpace(toolchain)), nil
}

// every calls fn again and again until stop is called; fn does not run after stop returns.
func every(period time.Duration, fn func()) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(period)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				fn()
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

// kubernetesGoMod is the go.mod of a version of k8s.io/kubernetes.
func kubernetesGoMod(ctx context.Context, version, dir string) ([]byte, error) {
	out, err := goCommand{dir: dir}.run(ctx, "mod", "download", "-json", kubernetesModule+"@v"+version)
	if failed := (*goError)(nil); err != nil && !errors.As(err, &failed) {
		return nil, err
	}
	var m struct{ GoMod, Error string }
	if jsonErr := json.Unmarshal([]byte(out), &m); jsonErr != nil {
		return nil, errors.Join(err, fmt.Errorf("go mod download -json %s: %w", kubernetesModule, jsonErr))
	}
	if m.Error != "" {
		if strings.Contains(m.Error, syscall.ENOSPC.Error()) {
			return nil, fmt.Errorf("%w: %s", syscall.ENOSPC, m.Error)
		}
		return nil, fmt.Errorf("module %s %w: %s", kubernetesModule, errUnavailable, firstLine(m.Error))
	}
	return os.ReadFile(m.GoMod)
}

// scratchGoMod makes a go.mod that builds a version of k8s.io/kubernetes as its own go.mod says: with its go and godebug
// lines, and each staging module (k8s.io/NAME) at the version that was published with it (v0.37.2 for 1.37.2).
func scratchGoMod(version string, kubernetes []byte) ([]byte, error) {
	k, err := modfile.Parse(kubernetesModule+"/go.mod", kubernetes, nil)
	if err != nil {
		return nil, err
	}
	own := new(modfile.File)
	if err := own.AddModuleStmt("kplab.invalid/kube-proxy"); err != nil {
		return nil, err
	}
	if k.Go != nil {
		if err := own.AddGoStmt(k.Go.Version); err != nil {
			return nil, err
		}
	}
	for _, g := range k.Godebug {
		if err := own.AddGodebug(g.Key, g.Value); err != nil {
			return nil, err
		}
	}
	if err := own.AddRequire(kubernetesModule, "v"+version); err != nil {
		return nil, err
	}
	staging := "v0." + strings.TrimPrefix(version, "1.")
	required := map[string]bool{}
	for _, r := range k.Require {
		required[r.Mod.Path] = true
	}
	for _, r := range k.Replace {
		if !modfile.IsDirectoryPath(r.New.Path) {
			if err := own.AddReplace(r.Old.Path, r.Old.Version, r.New.Path, r.New.Version); err != nil {
				return nil, err
			}
			continue
		}
		if err := errors.Join(module.Check(r.Old.Path, staging), own.AddReplace(r.Old.Path, "", r.Old.Path, staging)); err != nil {
			return nil, err
		}
		if required[r.Old.Path] { // so that the binary records this version, not the v0.0.0 that is replaced
			if err := own.AddRequire(r.Old.Path, staging); err != nil {
				return nil, err
			}
		}
	}
	own.Cleanup()
	return own.Format()
}

// linkerFlags has the binary say its version, as the project's own build does (hack/lib/version.sh).
func linkerFlags(version string) string {
	flags := []string{"-s", "-w"}
	for _, p := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, v := range [][2]string{{"gitVersion", "v" + version}, {"gitMajor", "1"}, {"gitMinor", fmt.Sprint(minorOf(version))}} {
			flags = append(flags, "-X", p+"."+v[0]+"="+v[1])
		}
	}
	return strings.Join(flags, " ")
}

// moduleVersions lists the versions of k8s.io/kubernetes that the Go module proxy has.
func moduleVersions(ctx context.Context) ([]string, error) {
	out, err := goCommand{dir: os.TempDir()}.run(ctx, "list", "-m", "-versions", kubernetesModule)
	if err != nil {
		return nil, err
	}
	words := strings.Fields(out)
	if len(words) == 0 {
		return nil, fmt.Errorf("go list -m -versions %s listed nothing", kubernetesModule)
	}
	return words[1:], nil
}

// goError says that a go command failed.
type goError struct {
	argv   []string
	err    error
	stderr string
}

func (e *goError) Error() string {
	return fmt.Sprintf("%s: %v: %s", strings.Join(e.argv, " "), e.err, e.stderr)
}

func (e *goError) Unwrap() error {
	if strings.Contains(e.stderr, syscall.ENOSPC.Error()) { // the compiler's own, which is only a text here
		return syscall.ENOSPC
	}
	return e.err
}

// goCommand is how to run the go command.
type goCommand struct {
	dir   string
	env   []string      // KEY=value, beside the process's own
	lines *atomic.Int64 // counts the lines of its standard error, if not nil
}

// run runs the go command, apart from the user's GOFLAGS and workspace, and returns its standard output.
func (g goCommand) run(ctx context.Context, args ...string) (stdout string, err error) {
	path, err := exec.LookPath("go")
	if err != nil {
		return "", fmt.Errorf("building kube-proxy needs the go command: %w: install Go, or give the path of a kube-proxy instead of its version", err)
	}
	argv := append([]string{"go"}, args...)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = g.dir
	// GOFLAGS empty would mean the one that `go env -w` has set.
	cmd.Env = append(append(cmd.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "GO111MODULE=on"), g.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // the compilers too
	cmd.WaitDelay = 5 * time.Second
	var out strings.Builder
	cmd.Stdout = &out
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	said := tail(stderr, g.lines)
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return "", fmt.Errorf("%s: %w", strings.Join(argv, " "), context.Cause(ctx))
		}
		return out.String(), &goError{argv: argv, err: err, stderr: said}
	}
	return out.String(), nil
}

// tail reads r to its end, adds its lines to count and returns the last ones.
func tail(r io.Reader, count *atomic.Int64) string {
	const keep = 20
	var last []string
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if count != nil {
			count.Add(1)
		}
		if last = append(last, lines.Text()); len(last) > keep {
			last = last[1:]
		}
	}
	_, _ = io.Copy(io.Discard, r) // after a line that is too long
	return strings.Join(last, "\n")
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
