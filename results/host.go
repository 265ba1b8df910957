package results

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// ThisHost describes the machine and the kplab that this process is. What /proc or /etc do not tell is left empty.
func ThisHost() Host {
	h := Host{
		OS:     field("/etc/os-release", "PRETTY_NAME", "="),
		CPU:    field("/proc/cpuinfo", "model name", ":"),
		Cores:  runtime.NumCPU(),
		Kernel: contents("/proc/sys/kernel/osrelease"),
		KPLab:  version(),
		User:   "root",
	}
	if kib, err := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal", ":"), " kB"), 10, 64); err == nil {
		h.MemoryBytes = kib << 10
	}
	if uid := os.Getuid(); uid != 0 {
		h.User = fmt.Sprintf("uid %d", uid)
	}
	return h
}

// version is the version of the module that this binary was built from; a pseudo-version names the commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}

func contents(file string) string {
	text, _ := os.ReadFile(file)
	return strings.TrimSpace(string(text))
}

// field returns the value of the first line of file that names key before separator, without quotes.
func field(file, key, separator string) string {
	for line := range strings.Lines(contents(file)) {
		if k, v, ok := strings.Cut(line, separator); ok && strings.TrimSpace(k) == key {
			return strings.Trim(strings.TrimSpace(v), `"`)
		}
	}
	return ""
}
