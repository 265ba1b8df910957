package kindcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// enginePackages are the Debian packages of a VM that clusters run in: the engine, and what the lab calls beside it.
var enginePackages = strings.Fields("docker.io containerd runc iptables kmod iproute2 procps util-linux mount ca-certificates netbase")

const (
	diskSize = "24G" // of the file system; the file has holes
	diskRoom = 8 << 30

	// ArchiveInDisk is where the root that [Images.Disk] makes has the archive of the nodes' image.
	ArchiveInDisk = "/kplab-node.tar"
	// ProgramsInDisk is where it has what comes before the engine's own programs.
	ProgramsInDisk = "/usr/local/bin"
	// FolderInDisk is where it has room for an engine.
	FolderInDisk = "/var/lib/kplab"
)

// patientDocker stands before docker in the VM, for what kind and kubeadm have no setting for. kind gives a node 30 seconds from docker's return
// to the end of its boot, and an emulated machine takes longer (kind, pkg/cluster/internal/providers/docker/provision.go): it returns when the node
// has booted, or after some minutes with what the node said on the VM's console. kubeadm join gives up when one request has taken the API server 10
// seconds (kubeadm, util/kubeconfig): it is tried again.
const patientDocker = `#!/bin/sh
case "$*" in
exec*" kubeadm join "*)
	tries=0
	until /usr/bin/docker "$@"; do
		tries=$((tries + 1))
		test $tries -lt 6 || exit 1
		sleep 10
	done
	exit 0
	;;
esac
/usr/bin/docker "$@" || exit
case "$1 $*" in
"run "*io.x-k8s.kind.role=*) ;;
*) exit 0 ;;
esac
tries=0
until /usr/bin/docker logs "$3" 2>&1 | grep -q 'Reached target .*Multi-User System'; do
	tries=$((tries + 1))
	if [ $tries -gt 200 ]; then
		/usr/bin/docker logs "$3" >/dev/console 2>&1
		exit 1
	fi
	sleep 1
done
`

// Disk returns the path of an ext4 file system for a VM whose kernel clusters are to have: a Debian root with a container engine and the
// archive of a node image. It is made once for each image, in a minute or two, and kept.
func (b *Images) Disk(ctx context.Context, image string) (path string, err error) {
	id, err := b.Engine.Run(ctx, "image", "inspect", "--format", "{{.Id}}", image)
	if err != nil {
		return "", err
	}
	path = filepath.Join(b.Cache, "disk-"+digest(id, image, diskSize, patientDocker, strings.Join(enginePackages, " "))+".ext4")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if os.Geteuid() != 0 {
		return "", errors.New("making a VM's disk needs root, whose files it has: run kplab with sudo")
	}
	if err := room(b.Cache, diskRoom, "making a VM's disk"); err != nil {
		return "", err
	}
	root := filepath.Join(b.Cache, "engine-"+suite+"-"+digest(enginePackages...)+".tar")
	if err := b.step(ctx, "Debian root with an engine", root, func(ctx context.Context, to string) error { return b.bootstrap(ctx, enginePackages, to) }); err != nil {
		return "", err
	}
	return path, b.step(ctx, "disk with the node image", path, func(ctx context.Context, to string) error { return b.format(ctx, root, image, to) })
}

// format makes a file system of a root and a node image.
func (b *Images) format(ctx context.Context, root, image, to string) (err error) {
	tree, err := os.MkdirTemp(b.Cache, ".disk-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tree)) }()
	if err := os.Chmod(tree, 0o755); err != nil {
		return err
	}
	if err := run(ctx, b.Cache, "tar", "--numeric-owner", "-C", tree, "-xf", root, "--exclude=./dev/*"); err != nil {
		return err
	}
	if _, err := b.Engine.Run(ctx, "save", "-o", filepath.Join(tree, ArchiveInDisk), image); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(tree, FolderInDisk), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tree, ProgramsInDisk, docker), []byte(patientDocker), 0o755); err != nil {
		return err
	}
	mkfs, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		return fmt.Errorf("%w: apt-get install e2fsprogs", err)
	}
	// A guest's copy of it goes with the guest: a journal would only cost.
	return run(ctx, b.Cache, mkfs, "-q", "-O", "^has_journal", "-E", "root_owner=0:0", "-d", tree, to, diskSize)
}

// LoadImage gives the engine an archive of images.
func (e *Engine) LoadImage(ctx context.Context, path string) error {
	_, err := e.Run(ctx, "load", "-q", "-i", path)
	return err
}
