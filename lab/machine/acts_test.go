package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"kplab/lab"
)

type act func(ctx context.Context, job lab.Job, m lab.Machine, say func(string)) error

// acts are what cells of this package's tests do instead of a scenario.
func acts() map[string]act {
	return map[string]act{
		"look": func(_ context.Context, _ lab.Job, _ lab.Machine, say func(string)) error {
			say(fmt.Sprintf("pid=%d ppid=%d uid=%d", os.Getpid(), os.Getppid(), os.Getuid()))
			links, err := os.ReadDir("/proc/sys/net/ipv4/conf")
			if err != nil {
				return err
			}
			for _, l := range links {
				say("link=" + l.Name())
			}
			return nil
		},
		"namespaces": func(_ context.Context, _ lab.Job, _ lab.Machine, say func(string)) error {
			for _, ns := range []string{"user", "pid", "mnt", "net", "ipc", "uts", "cgroup"} {
				id, err := os.Readlink("/proc/self/ns/" + ns)
				if err != nil {
					return err
				}
				say(ns + "=" + id)
			}
			return nil
		},
		"refuse": func(context.Context, lab.Job, lab.Machine, func(string)) error {
			return errors.New("the job makes no sense")
		},
		"die": func(context.Context, lab.Job, lab.Machine, func(string)) error {
			fmt.Fprintln(os.Stderr, "farewell")
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		},
		"hang": func(ctx context.Context, _ lab.Job, _ lab.Machine, say func(string)) error {
			cmd := exec.Command("sleep", "1000")
			if err := cmd.Start(); err != nil {
				return err
			}
			say("hanging")
			return cmd.Wait()
		},
		"panic": func(context.Context, lab.Job, lab.Machine, func(string)) error {
			return os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0)
		},
		"stop": func(ctx context.Context, _ lab.Job, _ lab.Machine, _ func(string)) error {
			// Another thread may take the signal: this one must not get to the end before it is stopped.
			if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		},
		"hog": func(context.Context, lab.Job, lab.Machine, func(string)) error {
			var hoard [][]byte
			for {
				b := make([]byte, 1<<20)
				for i := range b {
					b[i] = byte(i)
				}
				hoard = append(hoard, b)
				runtime.KeepAlive(hoard)
			}
		},
		// Orphans come and go while commands run whose status has to be theirs.
		"orphans": func(_ context.Context, _ lab.Job, _ lab.Machine, say func(string)) error {
			var group sync.WaitGroup
			for i := range 20 {
				group.Go(func() {
					err := exec.Command("sh", "-c", fmt.Sprintf("(true & true &) ; exit %d", i+1)).Run()
					var status *exec.ExitError
					if !errors.As(err, &status) || status.ExitCode() != i+1 {
						say(fmt.Sprintf("stolen: %v", err))
					}
				})
			}
			group.Wait()
			procs, err := os.ReadDir("/proc")
			if err != nil {
				return err
			}
			for _, p := range procs {
				if _, err := strconv.Atoi(p.Name()); err != nil {
					continue
				}
				if stat, err := os.ReadFile("/proc/" + p.Name() + "/stat"); err == nil {
					say("process " + strings.Join(strings.Fields(string(stat))[:4], " "))
				}
			}
			return nil
		},
		"mount": func(_ context.Context, job lab.Job, _ lab.Machine, say func(string)) error {
			if err := unix.Mount(job.Root, job.Root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
				return fmt.Errorf("bind the userland: %w", err)
			}
			if err := unix.Mount("tmpfs", job.Root+"/run", "tmpfs", 0, ""); err != nil {
				return fmt.Errorf("mount its /run: %w", err)
			}
			say("mounted")
			return nil
		},
		"disk": func(_ context.Context, _ lab.Job, _ lab.Machine, say func(string)) error {
			var fs unix.Statfs_t
			if err := unix.Statfs("/", &fs); err != nil {
				return err
			}
			say(fmt.Sprintf("ext4=%t", fs.Type == unix.EXT4_SUPER_MAGIC))
			if _, err := os.Stat(DiskUserland + "/init"); err != nil {
				return err
			}
			return os.WriteFile("/written", []byte("by the guest"), 0o600)
		},
		"nft": func(ctx context.Context, job lab.Job, _ lab.Machine, say func(string)) error {
			out, err := Chroot(job.Root)(ctx, "nft", "add table ip t; list ruleset")
			if err == nil {
				say(out)
			}
			return err
		},
	}
}
