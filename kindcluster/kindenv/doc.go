// Package kindenv makes a kind cluster a [lab.Env]: objects go through the cluster's own API server, controllers make the
// EndpointSlices, kubelets start the pods and kube-proxies; probes are sent, and answered, inside the network namespaces
// of the cluster's pods and nodes by the same code as in the synthetic env.
//
// What stands between cells is a [Fixture]. A cell's own state (objects, kube-proxies, rules, conntrack, sysctls, addresses) is
// removed before and after it. The cells of a cluster run one at a time.
//
// Joining the namespaces of containers needs root on the machine that runs the engine.
package kindenv
