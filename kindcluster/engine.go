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

// FindEngine returns the engine that the lab has started, or else the user's docker, or the one that KIND_EXPERIMENTAL_PROVIDER names:
// podman, whose rules suit clusters of the lab on few machines, is taken only by name. folder is where [StartEngine] keeps its own.
func FindEngine(ctx context.Context, folder string) (*Engine, error) {
	candidates := []*Engine{{program: docker, host: "unix://" + socket(folder)}, {program: docker}}
	switch named := os.Getenv(providerVariable); named {
	case "":
	case docker, podman:
		candidates = []*Engine{{program: named}}
	default:
		return nil, fmt.Errorf("%s=%q: expected docker or podman%s", providerVariable, named, lab.Suggest(named, []string{docker, podman}))
	}
	var said []error
	for _, e := range candidates {
		if _, err := os.Stat(socket(folder)); e.host != "" && err != nil {
			continue
		}
		if _, err := exec.LookPath(e.program); err != nil {
			said = append(said, err)
			continue
		}
		if _, err := e.Run(ctx, "info"); err != nil {
			said = append(said, err)
			continue
		}
		return e, nil
	}
	return nil, fmt.Errorf("%w: start yours, or install docker (apt-get install docker.io) and start one for the lab (kplab kind engine): %w", ErrNoEngine, errors.Join(said...))
}

// Use makes this process and its children, the kind library among them, talk to the engine and put clusters on the lab's network.
func (e *Engine) Use() error {
	err := os.Setenv("KIND_EXPERIMENTAL_"+strings.ToUpper(e.program)+"_NETWORK", network)
	if e.host != "" {
		err = errors.Join(err, os.Setenv("DOCKER_HOST", e.host))
	}
	return err
}

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

// provider is kind's view of the engine. [Engine.Use] comes before.
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
