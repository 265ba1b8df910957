package kindenv

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// podLogs are the files of a node that hold what the containers of a pod of one container have written, in the order of their starts. The API server
// would ask the kubelet for them, whose port a scenario's firewall may have closed.
func (h *host) podLogs(pod *corev1.Pod) []string {
	folder := procPath(h.root, filepath.Join("root/var/log/pods", pod.Namespace+"_"+pod.Name+"_"+string(pod.UID), pod.Spec.Containers[0].Name))
	files, _ := filepath.Glob(filepath.Join(folder, "*.log")) // the pattern is well-formed
	number := func(path string) int {
		n, _ := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), ".log"))
		return n
	}
	slices.SortFunc(files, func(a, b string) int { return number(a) - number(b) })
	return files
}

// podLog is what the pod's kube-proxy has written.
func (p *proxy) podLog(pod *proxyPod) string {
	files := p.node.podLogs(pod.made)
	if len(files) == 0 {
		return "# the node has no log of it\n"
	}
	return readLog(files[len(files)-1])
}

func readLog(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("# %v\n", err)
	}
	return fromCRI(string(data))
}

// fromCRI takes a log in the format of the Container Runtime Interface for what was written to it: each line has a time, a stream and a tag before it,
// and the tag P says that the line goes on in the next.
func fromCRI(log string) string {
	var text strings.Builder
	for line := range strings.Lines(log) {
		fields := strings.SplitN(line, " ", 4)
		if len(fields) < 4 {
			text.WriteString(line)
			continue
		}
		if fields[2] == "P" {
			fields[3] = strings.TrimSuffix(fields[3], "\n")
		}
		text.WriteString(fields[3])
	}
	return text.String()
}
