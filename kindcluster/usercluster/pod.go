package usercluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kplab/lab/topology"
)

const (
	podDeadline = 4 * time.Minute // an image is pulled
	// podLife ends the pods of a run that was killed, also if nobody removes the namespace.
	podLife   = 6 * time.Hour
	container = "probe"
	folder    = "/kplab" // of the container, for the program
)

// podSpecs are the pods of a run: the standard env's, and one in the network of each node, which is the node as a host.
func podSpecs() (all []topology.HostSpec) {
	for _, h := range topology.Standard().Hosts {
		if h.Role != topology.OutsideRole {
			all = append(all, h)
		}
	}
	return all
}

// pod is a pod that waits to be spoken to.
func (f *Fixture) pod(spec topology.HostSpec) *corev1.Pod {
	token, grace, life := false, int64(0), int64(podLife/time.Second)
	node := f.nodes[spec.Name]
	if spec.On != "" {
		node = f.nodes[spec.On]
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: spec.Name, Namespace: f.namespace, Labels: spec.Labels},
		Spec: corev1.PodSpec{
			NodeName: node.Name, AutomountServiceAccountToken: &token, TerminationGracePeriodSeconds: &grace, ActiveDeadlineSeconds: &life,
			RestartPolicy: corev1.RestartPolicyNever,
			HostNetwork:   spec.Role == topology.NodeRole,
			Tolerations:   []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, // of a control plane, if n1 or n2 is one
			Volumes:       []corev1.Volume{{Name: "program", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			Containers: []corev1.Container{{
				Name: container, Image: f.options.Image, ImagePullPolicy: corev1.PullIfNotPresent,
				Command:      []string{"sleep", fmt.Sprint(life)},
				VolumeMounts: []corev1.VolumeMount{{Name: "program", MountPath: folder}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
				}},
			}},
		},
	}
	if f.rawSockets {
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_RAW"}}}
	}
	return p
}

// startPods creates the pods. Those of the nodes may be refused: their hosts are absent then, for the reason that the API server gave.
func (f *Fixture) startPods(ctx context.Context) error {
	for _, spec := range podSpecs() {
		err := f.createPod(ctx, spec)
		if refused(err) && f.rawSockets {
			f.rawSockets = false // some runtimes give it without being asked
			if err = f.createPod(ctx, spec); err != nil {
				f.rawSockets = true
			}
		}
		switch {
		case err == nil:
		case refused(err) && spec.Role == topology.NodeRole:
			f.missing[spec.Name] = fmt.Sprintf("pods in the nodes' network are not admitted: %v", err)
		default:
			return fmt.Errorf("create pod %s: %w", spec.Name, err)
		}
	}
	return nil
}

// createPod creates a pod once its namespace has the ServiceAccount without which pods are refused.
func (f *Fixture) createPod(ctx context.Context, spec topology.HostSpec) error {
	ctx, cancel := context.WithTimeoutCause(ctx, surveyDeadline, errNoTime)
	defer cancel()
	return poll(ctx, func() (bool, error) {
		_, err := f.client.CoreV1().Pods(f.namespace).Create(ctx, f.pod(spec), metav1.CreateOptions{})
		if err == nil || apierrors.IsAlreadyExists(err) {
			return true, nil
		}
		if !isAccountMissing(err) {
			err = &finalError{err}
		}
		return false, err
	})
}

// isAccountMissing is how admission says that a namespace is too new.
func isAccountMissing(err error) bool {
	return apierrors.IsForbidden(err) && slices.ContainsFunc([]string{"serviceaccount", "service account"}, func(s string) bool { return strings.Contains(err.Error(), s) })
}

// refused reports whether admission does not let a pod in, as it is.
func refused(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// waitPod waits until a pod runs, and returns its addresses.
func (f *Fixture) waitPod(ctx context.Context, name string) (addresses []netip.Addr, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, podDeadline, fmt.Errorf("not after %s", podDeadline))
	defer cancel()
	err = poll(ctx, func() (bool, error) {
		pod, err := f.client.CoreV1().Pods(f.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if hopeless, why := podState(pod); why != "" {
			err = fmt.Errorf("%s (image %s, node %s)", why, f.options.Image, pod.Spec.NodeName)
			if hopeless {
				err = &finalError{err}
			}
			return false, err
		}
		addresses = nil
		for _, ip := range pod.Status.PodIPs {
			a, err := netip.ParseAddr(ip.IP)
			if err != nil {
				return false, err
			}
			addresses = append(addresses, a)
		}
		return len(addresses) > 0, nil
	})
	if err != nil {
		return nil, fmt.Errorf("pod %s does not run: %w", name, err)
	}
	return addresses, nil
}

// podState is why a pod does not run, "" if it does, and whether there is hope.
func podState(pod *corev1.Pod) (hopeless bool, why string) {
	switch pod.Status.Phase {
	case corev1.PodFailed, corev1.PodSucceeded:
		return true, fmt.Sprintf("it has ended: %s %s", pod.Status.Reason, pod.Status.Message)
	case corev1.PodRunning:
		return false, ""
	}
	for _, s := range pod.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil {
			return slices.Contains([]string{"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError"}, w.Reason),
				w.Reason + " " + w.Message
		}
	}
	return false, "it is " + string(pod.Status.Phase)
}
