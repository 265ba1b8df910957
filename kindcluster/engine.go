package kindcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Prefix begins the name of everything that the lab has an engine make.
const Prefix = "kplab"

// Engine is a container engine that answers: docker, reached as the user reaches it, or one that [StartEngine] has started.
type Engine struct {
	host string // DOCKER_HOST, "" for the user's own
}

// ErrNoEngine says that no container engine answers.
var ErrNoEngine = errors.New("no container engine answers")

// FindEngine returns the engine that the lab has started, or else the user's. folder is where [StartEngine] keeps its own.
func FindEngine(ctx context.Context, folder string) (*Engine, error) {
	if _, err := exec.LookPath("docker"); err != nil {
		return nil, fmt.Errorf("%w: %w: apt-get install docker.io, then kplab kind engine", ErrNoEngine, err)
	}
	var said []error
	for _, host := range []string{"unix://" + socket(folder), ""} {
		if _, err := os.Stat(socket(folder)); host != "" && err != nil {
			continue
		}
		e := &Engine{host: host}
		if _, err := e.Run(ctx, "info", "--format", "{{.ServerVersion}}"); err != nil {
			said = append(said, err)
			continue
		}
		return e, nil
	}
	return nil, fmt.Errorf("%w: start yours, or one for the lab by kplab kind engine: %w", ErrNoEngine, errors.Join(said...))
}

// Use makes this process and its children, the kind library among them, talk to the engine.
func (e *Engine) Use() error {
	if e.host == "" {
		return nil
	}
	return os.Setenv("DOCKER_HOST", e.host)
}

// Run runs the engine's command and returns what it printed.
func (e *Engine) Run(ctx context.Context, args ...string) (string, error) {
	return e.feed(ctx, nil, args...)
}

func (e *Engine) feed(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	stdout, stderr, err := e.output(ctx, stdin, args...)
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr))
	}
	return strings.TrimSpace(stdout), nil
}

func (e *Engine) output(ctx context.Context, stdin io.Reader, args ...string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	if cmd.Env = os.Environ(); e.host != "" {
		cmd.Env = append(cmd.Env, "DOCKER_HOST="+e.host)
	}
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
	err = cmd.Run()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return out.String(), errs.String(), err
}

func socket(folder string) string { return filepath.Join(folder, "docker.sock") }
