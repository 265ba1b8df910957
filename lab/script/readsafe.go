package script

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"kplab/lab"
	"kplab/lab/manifest"
)

// Intrudes says by which step a scenario would do more in a cluster that is in use than create Services of its own, send probes to them
// and look: "state-by-mode.txtar:12: count ...". It is "" for a scenario that is read-safe. That follows from the steps alone: from every
// one that no condition about the substrate keeps out, up to an end there.
func (s *Script) Intrudes() string {
	for _, step := range s.Steps {
		if !mayRun(step.Conditions) {
			continue
		}
		if step.Command == "end" && alwaysThere(step.Conditions) {
			return ""
		}
		if why := s.intrusion(step.Command, step.Args); why != "" {
			return fmt.Sprintf("%s:%d: %s: %s", s.File, step.Line, strings.Join(append([]string{step.Command}, step.Args...), " "), why)
		}
	}
	return ""
}

// mayRun reports whether a step may run in a cluster that existed before, as far as its conditions about the substrate tell.
func mayRun(conditions []string) bool {
	return !slices.ContainsFunc(conditions, func(c string) bool {
		tag, negated := strings.CutPrefix(c, "!")
		substrate, about := strings.CutPrefix(tag, "substrate:")
		return about && (substrate == lab.ClusterSubstrate) == negated
	})
}

// alwaysThere reports whether the step runs there whatever else is the case.
func alwaysThere(conditions []string) bool {
	return mayRun(conditions) && !slices.ContainsFunc(conditions, func(c string) bool {
		return !strings.HasPrefix(strings.TrimPrefix(c, "!"), "substrate:")
	})
}

// harmless are the commands that do nothing to a cluster, whatever their arguments.
var harmless = []string{"claim", "control", "end", "expect", "floor", "must", "proxy-mode", "requires", "save"}

// intrusion is why a command would do too much, "" if it would not.
func (s *Script) intrusion(command string, args []string) string {
	switch {
	case slices.Contains(harmless, command):
		return ""
	case command == "await":
		return s.intrusion(args[0], args[1:max(1, slices.Index(args, "--"))])
	case command == "apply":
		return s.intrudingObjects(args)
	case command == "delete":
		if slices.ContainsFunc(args, func(a string) bool { return !strings.HasPrefix(a, "service/") }) {
			return "deletes more than Services"
		}
		return ""
	case command == "probe":
		return intrudingProbe(args)
	case command == "spread":
		_, args = takeFamilies(args)
		if args[0] == "-keep" {
			return "keeps connections"
		}
		return intrudingTarget(args[1])
	case command == "kube-proxy":
		if args[0] != "start" && args[0] != "sync" {
			return "stops or restarts kube-proxy"
		}
		for _, a := range args[1:] {
			if !strings.HasPrefix(a, "node=") {
				return "configures kube-proxy"
			}
		}
		return ""
	}
	return "acts on a node, or needs more of it than packets"
}

// intrudingProbe reads groups of hosts, protocols and targets, as probe does.
func intrudingProbe(args []string) string {
	_, args = takeFamilies(args)
	for i := 0; i+2 < len(args); i += 4 {
		if slices.Contains(strings.Split(args[i+1], ","), "sctp") {
			return "SCTP has the nodes load a module"
		}
		for _, t := range strings.Split(args[i+2], ",") {
			if why := intrudingTarget(t); why != "" {
				return why
			}
		}
	}
	return ""
}

// intrudingTarget is why a target may be somebody else's.
func intrudingTarget(text string) string {
	t, err := parseTarget(text)
	if err != nil {
		return err.Error()
	}
	if _, err := netip.ParseAddr(t.place); err == nil {
		return "whose address that is in another cluster is not known"
	}
	if kind, _, ok := strings.Cut(t.place, "/"); ok && kind != "svc" {
		return "needs an address from outside the cluster"
	}
	return ""
}

// intrudingObjects is why files hold more than Services that a cluster gives addresses to by itself.
func (s *Script) intrudingObjects(args []string) string {
	for _, name := range args {
		if name == "-no-wait" {
			continue
		}
		for _, o := range s.objects(name) {
			svc, ok := o.(*corev1.Service)
			if !ok {
				return fmt.Sprintf("%s has a %s: only Services are applied", name, o.GetObjectKind().GroupVersionKind().Kind)
			}
			if why := intrudingService(svc); why != "" {
				return fmt.Sprintf("Service %s of %s %s", svc.Name, name, why)
			}
		}
	}
	return ""
}

func intrudingService(svc *corev1.Service) string {
	spec := svc.Spec
	switch {
	case spec.Type == corev1.ServiceTypeLoadBalancer:
		return "would have a load balancer made for it"
	case spec.Type == corev1.ServiceTypeExternalName:
		return "leads outside"
	case len(spec.ExternalIPs) > 0:
		return "takes externalIPs"
	case len(svc.Status.LoadBalancer.Ingress) > 0:
		return "takes a load balancer's address"
	case spec.ClusterIP != "" && spec.ClusterIP != corev1.ClusterIPNone || len(spec.ClusterIPs) > 0 && spec.ClusterIPs[0] != corev1.ClusterIPNone:
		return "asks for a ClusterIP of its own choice"
	case svc.Namespace != "" && svc.Namespace != namespace:
		return "is in another namespace"
	}
	return ""
}

// Services counts what the scenario has at most at a time in a cluster that existed before, if it is read-safe: its Services, and how many
// node ports these take.
func (s *Script) Services() (services, nodePorts int) {
	ports := map[string]int{} // by Service: those applied later replace those before
	for _, step := range s.Steps {
		if step.Command == "end" && alwaysThere(step.Conditions) {
			break
		}
		if step.Command != "apply" || !mayRun(step.Conditions) {
			continue
		}
		for _, name := range step.Args {
			for _, o := range s.objects(name) {
				svc, ok := o.(*corev1.Service)
				if !ok {
					continue
				}
				ports[svc.Name] = max(ports[svc.Name], 0)
				if svc.Spec.Type == corev1.ServiceTypeNodePort {
					ports[svc.Name] = max(ports[svc.Name], len(svc.Spec.Ports))
				}
			}
		}
	}
	for _, n := range ports {
		nodePorts += n
	}
	return len(ports), nodePorts
}

// objects are those of a file, with addresses of the documentation ranges. Parse has complained about a file that cannot be read.
func (s *Script) objects(name string) []runtime.Object {
	vars, err := (&session{dry: true}).addressVariables()
	if err != nil {
		return nil
	}
	text, err := expandAddresses(s.files[name], vars)
	if err != nil {
		return nil
	}
	objects, _ := manifest.Decode(s.File, s.lines[name], text)
	return objects
}
