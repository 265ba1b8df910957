package kindcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// nodeRoot is the root folder of a node in the making.
type nodeRoot struct {
	root, bin, version string
	tags               map[string]string // image by command
}

// furnish makes a Debian root a kind node: kind's own files, the commands, and a first boot that imports the images.
func (n *nodeRoot) furnish(ctx context.Context) error {
	for _, step := range []func(context.Context) error{n.kindFiles, n.commands, n.units, n.containerd, n.firstBoot} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (n *nodeRoot) path(name string) string { return filepath.Join(n.root, name) }

func (n *nodeRoot) write(name, text string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(n.path(name)), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(n.path(name), []byte(text), mode); err != nil {
		return err
	}
	return os.Chmod(n.path(name), mode)
}

func (n *nodeRoot) link(name, target string) error {
	if err := os.MkdirAll(filepath.Dir(n.path(name)), 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(n.path(name)); err != nil {
		return err
	}
	return os.Symlink(target, n.path(name))
}

// kindFiles copies images/base/files of the kind module that this program is built with. Modules have no modes.
func (n *nodeRoot) kindFiles(ctx context.Context) error {
	version, err := kindVersion()
	if err != nil {
		return err
	}
	dir, err := moduleFolder(ctx, kindModule, version)
	if err != nil {
		return err
	}
	source := filepath.Join(dir, "images/base/files")
	return filepath.Walk(source, func(p string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(p, source)
		mode := os.FileMode(0o644)
		if strings.HasPrefix(string(text), "#!") {
			mode = 0o755
		}
		return n.write(name, string(text), mode)
	})
}

func kindVersion() (string, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", fmt.Errorf("this program does not know what it was built from")
	}
	for _, m := range info.Deps {
		if m.Path == kindModule {
			return m.Version, nil
		}
	}
	return "", fmt.Errorf("this program was built without %s", kindModule)
}

func (n *nodeRoot) commands(context.Context) error {
	// Which mirror the packages came from is this machine's business.
	if err := os.WriteFile(n.path("etc/apt/sources.list"), nil, 0o644); err != nil {
		return err
	}
	for _, c := range nodeCommands {
		if err := copyFile(filepath.Join(n.bin, c), n.path("usr/bin/"+c)); err != nil {
			return err
		}
	}
	links := map[string]string{
		"usr/local/sbin/runc": "/usr/sbin/runc", "opt/cni/bin": "/usr/lib/cni",
		"usr/local/bin/containerd": "/usr/bin/containerd", "usr/local/bin/ctr": "/usr/bin/ctr", "usr/local/bin/containerd-shim-runc-v2": "/usr/bin/containerd-shim-runc-v2",
	}
	for name, target := range links {
		if err := n.link(name, target); err != nil {
			return err
		}
	}
	// A class without a provisioner: the lab has no volumes, and kind wants one.
	storage := "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata:\n  name: standard\nprovisioner: kubernetes.io/no-provisioner\n"
	for name, text := range map[string]string{"kind/version": "v" + n.version, "kind/manifests/default-storage.yaml": storage, "kind/manifests/default-cni.yaml": storage} {
		if err := n.write(name, text, 0o644); err != nil {
			return err
		}
	}
	return os.MkdirAll(n.path("etc/kubernetes/manifests"), 0o755)
}

// units leaves only what a node needs to start, as kind's own image does (images/base/Dockerfile).
func (n *nodeRoot) units(context.Context) error {
	for _, pattern := range []string{
		"lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service", "lib/systemd/system/multi-user.target.wants/*", "etc/systemd/system/*.wants/*",
		"lib/systemd/system/local-fs.target.wants/*", "lib/systemd/system/sockets.target.wants/*udev*", "lib/systemd/system/sockets.target.wants/*initctl*",
		"lib/systemd/system/basic.target.wants/*",
	} {
		found, err := filepath.Glob(n.path(pattern))
		if err != nil {
			return err
		}
		for _, f := range found {
			if err := os.RemoveAll(f); err != nil {
				return err
			}
		}
	}
	f, err := os.OpenFile(n.path("etc/systemd/journald.conf"), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(f, "ReadKMsg=no\n"); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	for _, unit := range []string{"kubelet", "containerd", "undo-mount-hacks"} {
		if err := n.link("etc/systemd/system/multi-user.target.wants/"+unit+".service", "/etc/systemd/system/"+unit+".service"); err != nil {
			return err
		}
	}
	if err := n.link("etc/systemd/system/multi-user.target.wants/"+imagesUnit+".path", "/etc/systemd/system/"+imagesUnit+".path"); err != nil {
		return err
	}
	return n.link("etc/systemd/system/systemd-binfmt.service", "/dev/null")
}

// containerd adapts kind's configuration: our pause image, processes that may not raise their own priority, and a CNI
// configuration of standard plugins that containerd fills with the node's own pod CIDRs, so that no pod has to install one.
func (n *nodeRoot) containerd(ctx context.Context) error {
	text, err := os.ReadFile(n.path("etc/containerd/config.toml"))
	if err != nil {
		return err
	}
	config := string(text)
	for _, edit := range [][2]string{
		{`sandbox_image = "registry.k8s.io/pause:3.10"`, `sandbox_image = "` + n.tags["pause"] + `"`},
		{"restrict_oom_score_adj = false", "restrict_oom_score_adj = true"},
	} {
		if !strings.Contains(config, edit[0]) {
			return fmt.Errorf("kind's containerd configuration has no %q", edit[0])
		}
		config = strings.Replace(config, edit[0], edit[1], 1)
	}
	config += "\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  conf_template = \"/etc/containerd/cni.template\"\n"
	for name, text := range map[string]string{"etc/containerd/config.toml": config, "etc/containerd/cni.template": cniTemplate} {
		if err := n.write(name, text, 0o644); err != nil {
			return err
		}
	}
	spec, err := exec.CommandContext(ctx, "chroot", n.root, "ctr", "oci", "spec").Output()
	if err != nil {
		return fmt.Errorf("ctr oci spec: %w", err)
	}
	var base map[string]any
	if err := json.Unmarshal(spec, &base); err != nil {
		return fmt.Errorf("ctr oci spec: %w", err)
	}
	if process, ok := base["process"].(map[string]any); ok {
		delete(process, "rlimits")
	}
	base["hooks"] = map[string]any{"createContainer": []any{map[string]any{"path": "/kind/bin/mount-product-files.sh"}}}
	if spec, err = json.Marshal(base); err != nil {
		return err
	}
	return n.write("etc/containerd/cri-base.json", string(spec), 0o644)
}

// cniTemplate: ptp as kind's own CNI uses it. containerd executes it once the node has its pod CIDRs.
const cniTemplate = `{
  "cniVersion": "0.4.0",
  "name": "kplab",
  "plugins": [
    {
      "type": "ptp",
      "ipMasq": false,
      "mtu": 1500,
      "ipam": {
        "type": "host-local",
        "dataDir": "/run/cni-ipam-state",
        "ranges": [{{range $i, $range := .PodCIDRRanges}}{{if $i}}, {{end}}[{"subnet": "{{$range}}"}]{{end}}],
        "routes": [{{range $i, $route := .Routes}}{{if $i}}, {{end}}{"dst": "{{$route}}"}{{end}}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`

const imagesUnit = "kplab-images"

const imagesService = `[Unit]
Description=import the images of the control plane
After=containerd.service
Requires=containerd.service
ConditionPathExists=/kind/images

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/kind/bin/import-images.sh
`

// importImages imports what the node's pods need: a worker, by the name that kind gives it, has none of the control plane's.
const importImages = `#!/bin/sh -e
cd /kind/images
case "$(hostname)" in
*-worker*) set -- kube-proxy.tar pause.tar busybox.tar ;;
*) set -- *.tar ;;
esac
for archive; do
	ctr -n k8s.io images import --no-unpack "$archive"
done
rm -r /kind/images
`

// imagesPath starts the import without the boot waiting for it: on cgroup v2 kind gives a node half a minute to boot.
const imagesPath = `[Unit]
Description=there are images of the control plane to import

[Path]
PathExists=/kind/images
`

// kubeletWaits has a kubelet that kubeadm starts meanwhile wait for the end of the import. Ordering the units would not do: at the boot the
// kubelet, which has no configuration yet, would wait, and the boot for the kubelet.
const kubeletWaits = `[Service]
ExecStartPre=/bin/sh -c 'while [ -e /kind/images ]; do sleep 0.2; done'
TimeoutStartSec=infinity
`

// firstBoot imports the images.
func (n *nodeRoot) firstBoot(context.Context) error {
	if err := os.MkdirAll(n.path("kind/images"), 0o755); err != nil {
		return err
	}
	if err := n.write("kind/bin/import-images.sh", importImages, 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{
		imagesUnit + ".path": imagesPath, imagesUnit + ".service": imagesService, "kubelet.service.d/20-images.conf": kubeletWaits,
	} {
		if err := n.write("etc/systemd/system/"+name, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}
