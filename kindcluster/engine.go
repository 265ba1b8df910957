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
	"sync"

	"sigs.k8s.io/kind/pkg/cluster"

	"kplab/lab"
)

// Prefix begins the name of everything that the lab has an engine make.
const Prefix = "kplab"

const (
	docker = "docker"
	podman = "podman"
)

// Engine is a container engine that answers: docker or podman, reached as the user reaches it, or a docker that [StartEngine] has started.
type Engine struct {
	program string // docker or podman
	host    string // DOCKER_HOST, "" for the user's own
}

// ErrNoEngine says that no container engine answers.
var ErrNoEngine = errors.New("no container engine answers")

// providerVariable is how kind is told which engine to take; the lab hears it too.
const providerVariable = "KIND_EXPERIMENTAL_PROVIDER"

// FindEngines returns the engines that the lab has started, most of them at the most, or else the user's docker, or the one that
// KIND_EXPERIMENTAL_PROVIDER names: podman, whose rules suit clusters of the lab on few machines, is taken only by name. folder is where
// [StartEngine] keeps the first of its own.
func FindEngines(ctx context.Context, folder string, most int) ([]*Engine, error) {
	var said []error
	try := func(e *Engine) bool {
		_, err := exec.LookPath(e.program)
		if err == nil {
			_, err = e.Run(ctx, "info")
		}
		if err != nil {
			said = append(said, err)
		}
		return err == nil
	}
	users := &Engine{program: docker}
	switch named := os.Getenv(providerVariable); named {
	case "":
		var own []*Engine
		for n := 1; len(own) < most; n++ {
			e := ownEngine(EngineFolder(folder, n))
			if _, err := os.Stat(e.socket()); err != nil || !try(e) {
				break
			}
			own = append(own, e)
		}
		if len(own) > 0 {
			return own, nil
		}
	case docker, podman:
		users.program = named
	default:
		return nil, fmt.Errorf("%s=%q: expected docker or podman%s", providerVariable, named, lab.Suggest(named, []string{docker, podman}))
	}
	if !try(users) {
		return nil, fmt.Errorf("%w: start yours, or install docker (apt-get install docker.io) and start one for the lab (kplab kind engine): %w", ErrNoEngine, errors.Join(said...))
	}
	return []*Engine{users}, nil
}

// library is held by whoever uses the kind library: it runs the engine's command in the environment of this process.
var library sync.Mutex

// kind does what uses the kind library, which then talks to this engine and puts clusters on the lab's network.
func (e *Engine) kind(ctx context.Context, do func() error) (err error) {
	library.Lock()
	defer library.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	set := map[string]string{"KIND_EXPERIMENTAL_" + strings.ToUpper(e.program) + "_NETWORK": network}
	if e.host != "" {
		set[hostVariable] = e.host
	}
	for name, value := range set {
		before, had := os.LookupEnv(name)
		if err := os.Setenv(name, value); err != nil {
			return err
		}
		defer func() {
			if had {
				err = errors.Join(err, os.Setenv(name, before))
			} else {
				err = errors.Join(err, os.Unsetenv(name))
			}
		}()
	}
	return do()
}

const hostVariable = "DOCKER_HOST"

// bridged is an error where the engine's own masquerading would change packets between the nodes: podman's rules (netavark) masquerade
// whatever leaves a container for an address that is not of its network, as pods' are not, and with br_netfilter they see what is only
// bridged. docker's except what stays on the bridge.
func (e *Engine) bridged() error {
	if e.program != podman {
		return nil
	}
	for _, key := range []string{"net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables"} {
		value, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(key, ".", "/"))
		if err == nil && strings.TrimSpace(string(value)) == "1" {
			return fmt.Errorf("podman would masquerade packets between the nodes' pods while %s is 1: use docker, or, if nothing else on this machine needs it, sysctl -w %s=0", key, key)
		}
	}
	return nil
}

// provider is kind's view of the engine, for use within [Engine.kind].
func (e *Engine) provider(more ...cluster.ProviderOption) *cluster.Provider {
	engine := cluster.ProviderWithDocker()
	if e.program == podman {
		engine = cluster.ProviderWithPodman()
	}
	return cluster.NewProvider(append(more, engine)...)
}

// localhost is the registry that podman has images of its own making in, and must hear, or kind asks Docker Hub.
const localhost = "localhost/"

// local is the full name of an image that the engine itself has made.
func (e *Engine) local(tag string) string {
	if e.program == podman {
		return localhost + tag
	}
	return tag
}

// ownLabel is on the node images that the lab has built, under whatever name they are kept.
const ownLabel = Prefix + ".node-image"

// ownImage reports whether the lab has built an image that the engine has.
func (e *Engine) ownImage(ctx context.Context, image string) (bool, error) {
	label, err := e.Run(ctx, "image", "inspect", "--format", `{{index .Config.Labels "`+ownLabel+`"}}`, image)
	return label == "1", err
}

// Run runs the engine's command and returns what it printed.
func (e *Engine) Run(ctx context.Context, args ...string) (string, error) {
	return e.feed(ctx, nil, args...)
}

func (e *Engine) feed(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	stdout, stderr, err := e.output(ctx, stdin, args...)
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", e.program, strings.Join(args, " "), err, strings.TrimSpace(stderr))
	}
	return strings.TrimSpace(stdout), nil
}

func (e *Engine) output(ctx context.Context, stdin io.Reader, args ...string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(ctx, e.program, args...)
	if cmd.Env = os.Environ(); e.host != "" {
		cmd.Env = append(cmd.Env, hostVariable+"="+e.host)
	}
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
	err = cmd.Run()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return out.String(), errs.String(), err
}

// EngineFolder is where the lab's n-th engine, from 1, keeps its state: the first in folder itself.
func EngineFolder(folder string, n int) string {
	if n == 1 {
		return folder
	}
	return filepath.Join(folder, fmt.Sprintf("engine-%d", n))
}

func ownEngine(folder string) *Engine {
	return &Engine{program: docker, host: unixScheme + filepath.Join(folder, "docker.sock")}
}

const unixScheme = "unix://"

// socket is where an engine of the lab listens.
func (e *Engine) socket() string { return strings.TrimPrefix(e.host, unixScheme) }
