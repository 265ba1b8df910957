// Package kubeproxy runs real kube-proxies: [Source] obtains a version's binary, [Config] writes its configuration, and
// [Process] starts it on a node, waits until what the API server holds is programmed, reads its metrics and log, and ends it.
//
// It knows kube-proxy 1.33 and later on Linux.
package kubeproxy
