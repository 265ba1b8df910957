package kindcluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"kplab/lab/kubeproxy"
)

const (
	kindModule = "sigs.k8s.io/kind"
	// etcdModule is built, since the one that Debian 12 has is too old for today's API servers.
	etcdModule  = "go.etcd.io/etcd/server/v3"
	etcdVersion = "v3.7.0"
	suite       = "bookworm" // whose systemd, 252, still starts on cgroup v1
)

// nodePackages are the Debian packages of a node.
var nodePackages = strings.Fields(`systemd systemd-sysv dbus conntrack iptables nftables ipset ipvsadm iproute2 ethtool socat util-linux mount kmod hostname curl jq
	procps containerd runc containernetworking-plugins libseccomp2 ca-certificates netbase iputils-ping tar gzip busybox-static`)

// components are the commands of Kubernetes that a node runs itself, and those that it runs in pods.
var (
	nodeCommands = []string{"kubeadm", "kubelet", "kubectl"}
	podCommands  = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"}
)

// Images makes and finds the images of clusters.
type Images struct {
	Engine   *Engine
	Cache    string // folder of what the steps come to
	Userland string // root folder of the tools that kube-proxy's image has beside it
	Progress func(line string)
}

// DebugImage is the image that the nodes have for kubectl debug: the busybox of the suite.
const DebugImage = "docker.io/library/busybox:1.35"

// NodeImage is the tag of the node image for a Kubernetes version. It has the recipe's digest, so that an image of an older
// recipe is not taken for this one's.
func NodeImage(version string) (string, error) {
	recipe, err := recipe(version)
	return Prefix + "/node:v" + version + "-" + recipe, err
}

// recipe is a digest of what goes into a node image beside the packages' and modules' own content.
func recipe(parts ...string) (string, error) {
	kind, err := kindVersion()
	if err != nil {
		return "", err
	}
	return digest(append(parts, kind, etcdVersion, suite, strings.Join(nodePackages, " "), pauseSource, cniTemplate, imagesService, imagesPath, importImages, ownLabel, kubeletWaits, DebugImage)...), nil
}

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:6])
}

// Node returns the node image for a Kubernetes version, building it if the engine does not have it: the root from Debian packages, the
// commands from Go modules, the images of the control plane from the commands. It takes about ten minutes on two cores
// the first time; each step's result is kept.
func (b *Images) Node(ctx context.Context, version string) (tag string, err error) {
	if tag, err = NodeImage(version); err != nil {
		return "", err
	}
	tag = b.Engine.local(tag)
	if have, err := b.Engine.Run(ctx, "images", "-q", tag); err != nil {
		return "", err
	} else if have != "" {
		return tag, nil
	}
	if os.Geteuid() != 0 {
		return "", errors.New("building a node image needs root, whose files the image has: run kplab with sudo")
	}
	if err := os.MkdirAll(b.Cache, 0o755); err != nil {
		return "", err
	}
	if err := room(b.Cache, buildRoom, "building a node image"); err != nil {
		return "", err
	}
	bin := filepath.Join(b.Cache, "bin-"+version+"-"+digest(etcdVersion, pauseSource))
	base := filepath.Join(b.Cache, suite+"-"+digest(nodePackages...)+".tar")
	for _, s := range []struct {
		what, result string
		make         func(ctx context.Context, to string) error
	}{
		{"commands of Kubernetes " + version, bin, func(ctx context.Context, to string) error { return b.buildCommands(ctx, version, to) }},
		{"Debian root", base, b.debianRoot},
	} {
		if err := b.step(ctx, s.what, s.result, s.make); err != nil {
			return "", fmt.Errorf("node image: %s: %w", s.what, err)
		}
	}
	err = b.timed("node image", func() error { return b.assemble(ctx, version, tag, base, bin) })
	if err != nil {
		return "", fmt.Errorf("node image: %w", err)
	}
	return tag, nil
}

// step makes a result and puts it in its place whole, unless another process does meanwhile: it waits for that.
func (b *Images) step(ctx context.Context, what, result string, make func(context.Context, string) error) (err error) {
	lock := flock.New(result + ".lock")
	if _, err := lock.TryLockContext(ctx, time.Second); err != nil {
		return fmt.Errorf("wait for %s: %w", lock.Path(), err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if _, err := os.Stat(result); err == nil {
		return nil
	}
	staged := result + ".new"
	if err := os.RemoveAll(staged); err != nil {
		return err
	}
	if err := b.timed(what, func() error { return make(ctx, staged) }); err != nil {
		return errors.Join(err, os.RemoveAll(staged))
	}
	return os.Rename(staged, result)
}

func (b *Images) timed(what string, do func() error) error {
	start := time.Now()
	b.Progress(what + " ...")
	if err := do(); err != nil {
		return err
	}
	b.Progress(fmt.Sprintf("%s: %s", what, time.Since(start).Round(100*time.Millisecond)))
	return nil
}

// buildCommands builds the commands of Kubernetes, etcd, and a process that does nothing.
func (b *Images) buildCommands(ctx context.Context, version, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(b.Cache, ".scratch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	if err := kubeproxy.BuildCommands(ctx, version, scratch, to, b.Progress, slices.Concat(nodeCommands, podCommands)...); err != nil {
		return err
	}
	etcd := filepath.Join(scratch, "etcd")
	if err := b.goModule(ctx, etcd, "package tools\n\nimport _ \""+etcdModule+"\"\n"); err != nil {
		return err
	}
	if err := run(ctx, etcd, "go", "get", etcdModule+"@"+etcdVersion); err != nil {
		return err
	}
	if err := run(ctx, etcd, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(to, "etcd"), etcdModule); err != nil {
		return err
	}
	pause := filepath.Join(scratch, "pause")
	if err := b.goModule(ctx, pause, pauseSource); err != nil {
		return err
	}
	return run(ctx, pause, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(to, "pause"), ".")
}

// pauseSource is the process that holds a pod's namespaces: it waits for its end, and reaps.
const pauseSource = `package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
`

func (b *Images) goModule(ctx context.Context, dir, source string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o644); err != nil {
		return err
	}
	return run(ctx, dir, "go", "mod", "init", "kplab.invalid/"+filepath.Base(dir))
}

// run runs a command in a folder. Its error has what it said last.
func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		text := strings.TrimSpace(string(out))
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, text[max(0, len(text)-2000):])
	}
	return nil
}

// debianRoot makes the root of a node.
func (b *Images) debianRoot(ctx context.Context, to string) error {
	return b.bootstrap(ctx, nodePackages, to)
}

// bootstrap has mmdebstrap make a root with packages from the machine's own mirror.
func (b *Images) bootstrap(ctx context.Context, packages []string, to string) error {
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		return fmt.Errorf("%w: apt-get install mmdebstrap", err)
	}
	return run(ctx, b.Cache, "mmdebstrap", "--quiet", "--format=tar", "--variant=minbase", "--include="+strings.Join(packages, ","), suite, to)
}

// assemble puts the image together in a scratch folder and imports it.
func (b *Images) assemble(ctx context.Context, version, tag, base, bin string) error {
	root, err := os.MkdirTemp(b.Cache, ".node-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	if err := run(ctx, root, "tar", "--numeric-owner", "-xf", base, "--exclude=./dev/*"); err != nil {
		return err
	}
	if err := os.Chmod(root, 0o755); err != nil {
		return err
	}
	tags, err := b.controlPlaneTags(ctx, version, filepath.Join(bin, "kubeadm"))
	if err != nil {
		return err
	}
	n := &nodeRoot{root: root, bin: bin, version: version, tags: tags}
	if err := n.furnish(ctx); err != nil {
		return err
	}
	for command, image := range tags {
		l := layer{files: map[string]string{"usr/local/bin/" + command: filepath.Join(bin, command)}}
		entrypoint := []string{"/usr/local/bin/" + command}
		if command == "kube-proxy" {
			l.trees = []string{b.Userland}
		}
		if err := writeArchive(filepath.Join(root, "kind/images", command+".tar"), image, entrypoint, l); err != nil {
			return err
		}
	}
	if err := b.debugArchive(root); err != nil {
		return err
	}
	return b.importRoot(ctx, root, tag)
}

// debugArchive adds the image that kubectl debug runs: busybox, with the names of its applets that are of use there.
func (b *Images) debugArchive(root string) error {
	tree, err := os.MkdirTemp(b.Cache, ".debug-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	bin := filepath.Join(tree, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(root, "bin/busybox"), filepath.Join(bin, "busybox")); err != nil {
		return err
	}
	for _, applet := range []string{"sh", "chroot", "cat", "ls", "sleep", "wget"} {
		if err := os.Symlink("busybox", filepath.Join(bin, applet)); err != nil {
			return err
		}
	}
	return writeArchive(filepath.Join(root, "kind/images/busybox.tar"), DebugImage, []string{"/bin/sh"}, layer{trees: []string{tree}})
}

// importRoot makes an image of a root folder. STOPSIGNAL, which docker import refuses, does not matter: kind kills its nodes.
func (b *Images) importRoot(ctx context.Context, root, tag string) error {
	tarred := exec.CommandContext(ctx, "tar", "--numeric-owner", "-C", root, "-c", ".")
	out, err := tarred.StdoutPipe()
	if err != nil {
		return err
	}
	if err := tarred.Start(); err != nil {
		return err
	}
	_, err = b.Engine.feed(ctx, out, "import", "-c", `ENTRYPOINT ["/usr/local/bin/entrypoint","/sbin/init"]`, "-c", "ENV container=docker", "-c", "LABEL "+ownLabel+"=1", "-", tag)
	out.Close() // or tar would wait for ever for a reader that is gone
	return errors.Join(err, tarred.Wait())
}

// controlPlaneTags are the images that kubeadm asks for, by the command that they run.
func (b *Images) controlPlaneTags(ctx context.Context, version, kubeadm string) (map[string]string, error) {
	out, err := exec.CommandContext(ctx, kubeadm, "config", "images", "list", "--kubernetes-version", "v"+version).Output()
	if err != nil {
		return nil, fmt.Errorf("kubeadm config images list: %w", err)
	}
	tags := map[string]string{}
	for _, image := range strings.Fields(string(out)) {
		name, _, _ := strings.Cut(filepath.Base(image), ":")
		if name != "coredns" {
			tags[name] = image
		}
	}
	for _, c := range append(podCommands, "etcd", "pause") {
		if tags[c] == "" {
			return nil, fmt.Errorf("kubeadm config images list names no image of %s: %q", c, out)
		}
	}
	return tags, nil
}

// ProxyArchive writes an image of kube-proxy, with the userland's tools beside it, that a cluster can load.
func (b *Images) ProxyArchive(version, binary string) (image, path string, err error) {
	image = "registry.k8s.io/kube-proxy:v" + version
	path = filepath.Join(b.Cache, "kube-proxy-"+version+".tar")
	if err := os.MkdirAll(b.Cache, 0o755); err != nil {
		return "", "", err
	}
	err = writeArchive(path, image, []string{"/usr/local/bin/kube-proxy"}, layer{
		trees: []string{b.Userland}, files: map[string]string{"usr/local/bin/kube-proxy": binary},
	})
	return image, path, err
}

// moduleFolder is where the go command has a module's source.
func moduleFolder(ctx context.Context, module, version string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module+"@"+version)
	cmd.Dir = os.TempDir()
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go mod download %s@%s: %w", module, version, err)
	}
	var m struct{ Dir string }
	if err := json.Unmarshal(out, &m); err != nil {
		return "", fmt.Errorf("go mod download %s: %w", module, err)
	}
	return m.Dir, nil
}
