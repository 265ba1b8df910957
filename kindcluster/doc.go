// Package kindcluster makes kind clusters for the lab: with a node image that it can build without a container registry, from
// Debian packages and Go modules, and with a kube-proxy of any version. Package kindenv runs cells on them.
package kindcluster
