package usercluster

import (
	"runtime"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// cluster is a Cluster over objects in memory, whose pods nobody reaches by way of the API server.
func cluster(t *testing.T, objects ...kruntime.Object) (*Cluster, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(objects...)
	client.PrependProxyReactor("*", func(clienttesting.Action) (bool, rest.ResponseWrapper, error) { return true, nil, nil })
	return &Cluster{Context: "staging", Server: "https://192.0.2.1:6443", client: client}, client
}

// aNode is a Ready Linux worker, changed as asked.
func aNode(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.10"}, {Type: corev1.NodeHostName, Address: name}},
			NodeInfo: corev1.NodeSystemInfo{
				OperatingSystem: "linux", Architecture: runtime.GOARCH, KernelVersion: "6.1.0-57", KubeletVersion: "v1.36.3",
			},
		},
	}
	for _, c := range change {
		c(n)
	}
	return n
}

func kernel(release string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = release }
}

func controls(n *corev1.Node) {
	n.Labels["node-role.kubernetes.io/control-plane"] = ""
	n.Spec.Taints = []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}
}

// aPod is a pod on a node, with one container.
func aPod(namespace, name, node, image string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "kube-proxy", Image: image}}},
	}
}

func kubeProxy(node, image string) *corev1.Pod {
	return aPod("kube-system", "kube-proxy-"+node, node, image, map[string]string{"k8s-app": "kube-proxy"})
}

// allow has the API server answer reviews of access: every right but those.
func allow(client *fake.Clientset, but ...string) {
	client.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, kruntime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
		r := review.Spec.ResourceAttributes
		review.Status.Allowed = true
		for _, b := range but {
			if b == (right{verb: r.Verb, group: r.Group, resource: r.Resource, subresource: r.Subresource}).String() {
				review.Status.Allowed = false
			}
		}
		return true, review, nil
	})
}
