// Package usercluster makes a cluster that existed before a [lab.Env], by its API alone: pods of a namespace of its own send the probes and
// answer them, with the code that does so everywhere else (package remote).
//
// It creates one namespace, up to six pods and the scenarios' Services in it, and removes the namespace at the end. No node, no kube-proxy
// and no other object is changed. What a cluster lacks of the standard env (a family, a way from this machine to the nodes, pods in
// the nodes' network) is said once, and the probes that need it are not made.
package usercluster
