package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"kplab/lab"
)

// platform is what a guest's architecture decides.
type platform struct {
	qemu    string // program
	pkg     string // Debian package that has it
	machine string
	emulate string   // CPU where QEMU translates
	console string   // kernel's name of the serial port
	kernel  []string // words for the kernel's command line
}

func platformOf(goarch string) (platform, error) {
	switch goarch {
	case "amd64":
		return platform{qemu: "qemu-system-x86_64", pkg: "qemu-system-x86", machine: "q35", console: "ttyS0",
			// QEMU does rep movsb a byte at a time: with erms a kernel clears and copies its pages with it. fsrm, which QEMU's max has
			// in 10.0 and not in 7.2, goes with it: Linux' memmove is wrong on a CPU that has fsrm alone, and the boot hangs. The others
			// cost more under emulation than they give: a switch of tasks saves the wide registers and the protection keys word by
			// word, copies between user and kernel space end a translated block twice, and a walk of the page table has a level more.
			emulate: "max,-erms,-fsrm,-xsave,-avx,-avx2,-pku,-smap,-smep,-umip,-la57",
			kernel: []string{
				"no_timer_check", // on a busy host the check of the timer's interrupt fails now and then, and the kernel panics
				"tsc=reliable",   // the host's, through TCG too; the other clocks are slow to read
			}}, nil
	case "arm64":
		return platform{qemu: "qemu-system-aarch64", pkg: "qemu-system-arm", machine: "virt", emulate: "max", console: "ttyAMA0"}, nil
	}
	return platform{}, fmt.Errorf("no VM for architecture %s", goarch)
}

// guest is one boot of a VM.
type guest struct {
	vm        *VM
	initramfs *os.File
	emit      func(lab.Event)

	ready   bool
	console tail // what the kernel and init print
	said    tail // what QEMU itself prints
}

// Descriptors that QEMU inherits.
const (
	initramfsFD = 3
	portFD      = 4
)

// qemu is a running QEMU.
type qemu struct {
	port *os.File // the guest's virtio-serial port
	kill func()
	wait func() error // returns when it is gone and its output is read
}

// find returns the path of the platform's QEMU.
func (p platform) find() (string, error) {
	path, err := exec.LookPath(p.qemu)
	if err != nil {
		return "", fmt.Errorf("a VM needs QEMU: %w (apt-get install %s)", err, p.pkg)
	}
	return path, nil
}

// arguments of QEMU but for the port's. init is the last argument of the guest's /init.
func (v *VM) arguments(p platform, initramfs *os.File, init string) []string {
	memory, cpus := v.Memory, v.CPUs
	if memory == 0 {
		memory = 3072
	}
	if cpus == 0 {
		cpus = 2
	}
	cpu, accel := p.emulate, "tcg,thread=multi"
	if v.Accelerator == AcceleratorKVM {
		cpu, accel = "host", "kvm"
	}
	if i, err := initramfs.Stat(); err == nil {
		memory += int(2 * i.Size() >> 20) // the guest holds it twice while it unpacks it
	}
	words := []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-nic", "none",
		"-M", p.machine, "-accel", accel, "-cpu", cpu, "-smp", strconv.Itoa(cpus), "-m", strconv.Itoa(memory),
		"-kernel", v.Kernel.Image, "-initrd", fmt.Sprintf("/proc/self/fd/%d", initramfsFD),
		"-append", v.commandLine(p, init),
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
	}
	if v.Disk != "" {
		words = append(words, diskArguments(v.Disk)...)
	}
	return words
}

// commandLine is the guest kernel's. init is the last argument of /init.
func (v *VM) commandLine(p platform, init string) string {
	words := append([]string{
		"console=" + p.console, "quiet", "loglevel=4",
		"panic=-1", "oops=panic", // a guest that is broken ends at once
		"random.trust_cpu=on",                // nothing else gives entropy early
		"mitigations=off", "init_on_alloc=0", // a guest has no secrets
		"hardened_usercopy=off", "randomize_kstack_offset=off", "lsm=capability", // nor anybody to be guarded against
		"cryptomgr.notests", "audit=0", // nor time
		"rcupdate.rcu_expedited=1", // namespaces come and go all the time
		// QEMU keeps a translation by its virtual address: at random ones it translates iptables and ipset anew at each of their
		// hundreds of starts. This and the CPU without erms halve the time of an ipvs cell.
		"norandmaps",
		"rdinit=/init",
	}, p.kernel...)
	if v.Disk == "" {
		words = append(words, "cgroup_disable=memory") // which charges every page, and which only containers need
	}
	return strings.Join(append(words, "--", init), " ")
}

// portArguments add the virtio-serial port.
func portArguments() []string {
	return []string{
		"-device", "virtio-serial-pci",
		"-chardev", fmt.Sprintf("socket,id=port,fd=%d", portFD), "-device", "virtserialport,chardev=port,name=" + portName,
	}
}

// start starts QEMU.
func (g *guest) start() (*qemu, error) {
	p, err := platformOf(runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	path, err := p.find()
	if err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make the guest's port: %w", err)
	}
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return nil, errors.Join(fmt.Errorf("make the guest's port: %w", err), unix.Close(pair[0]), unix.Close(pair[1]))
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "port"), os.NewFile(uintptr(pair[1]), "port")
	init := guestArg
	if g.vm.Disk != "" {
		init = diskArg + " " + guestArg
	}
	cmd := exec.Command(path, append(g.vm.arguments(p, g.initramfs, init), portArguments()...)...)
	cmd.Stdout, cmd.Stderr = &g.console, &g.said
	cmd.ExtraFiles = []*os.File{g.initramfs, theirs}
	kill, wait, err := startOwned(cmd)
	closeErr := theirs.Close()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %q: %w", cmd.Args, err), closeErr, ours.Close())
	}
	return &qemu{port: ours, kill: kill, wait: wait}, nil
}
