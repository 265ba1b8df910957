package lab

// State is what a node's kernel held at one moment.
type State struct {
	Step string `json:"step"` // file:line that looked
	Node string `json:"node"`
	When string `json:"when"` // in the script's words
	// Holds is what is kube-proxy's, without what the script has planted.
	Holds Holdings `json:"holds"`
	// ConntrackEntries is the size of the node's connection tracking table.
	ConntrackEntries *int `json:"conntrackEntries,omitempty"`
	// Sysctls are those that differ from the first state of the node in the cell.
	Sysctls []Sysctl `json:"sysctls,omitempty"`
	// Foreign is what the script has planted on the node.
	Foreign []Foreign `json:"foreign,omitempty"`
	// Leftovers is set where the script names a yardstick.
	Leftovers *Leftovers `json:"leftovers,omitempty"`
}

// Holdings counts what is kube-proxy's in a kernel, by kind. A count that is absent was not to be taken: a kernel without IP_VS has no
// virtual servers to count.
type Holdings struct {
	VirtualServers     *int `json:"virtualServers,omitempty"`
	RealServers        *int `json:"realServers,omitempty"`
	KubeIPVS0Addresses *int `json:"kubeIpvs0Addresses,omitempty"`
	IPSets             *int `json:"ipsets,omitempty"`    // named KUBE-*
	NFTTables          *int `json:"nftTables,omitempty"` // named kube-proxy
	// IPTables and IP6Tables have, by table, what is named KUBE-*; tables without any are left out.
	IPTables  map[string]TableCount `json:"iptables,omitempty"`
	IP6Tables map[string]TableCount `json:"ip6tables,omitempty"`
}

// TableCount counts the chains of a table of iptables, and the rules in them or that jump to them.
type TableCount struct {
	Chains int `json:"chains"`
	Rules  int `json:"rules"`
}

// Sysctl is one that is not as somewhere else.
type Sysctl struct {
	Key   string `json:"key"`   // "net.ipv4.vs.conntrack"
	Value string `json:"value"` // here and now
	Other string `json:"other"` // what it is compared with; "" where there was none
}

// Foreign is something that is not kube-proxy's and was there before.
type Foreign struct {
	Kind string `json:"kind"` // "nft-table", "iptables-chain", "ipset", "virtual-server"
	Name string `json:"name"`
	Kept bool   `json:"kept"` // it is still there
}

// Leftovers is what a node has beyond another one, which has kube-proxy in the same mode and never had it in another.
type Leftovers struct {
	Beyond string   `json:"beyond"` // the other node, the yardstick
	Holds  Holdings `json:"holds"`  // kinds of which there are more than there; those of which there are not are left out
	// Sysctls are those that are not as they are there.
	Sysctls []Sysctl `json:"sysctls,omitempty"`
}

// Survivors is what became of connections that were made before something changed.
type Survivors struct {
	Step        string         `json:"step"` // file:line that looked
	Name        string         `json:"name"` // what the script calls them
	Connections int            `json:"connections"`
	Traffic     Traffic        `json:"traffic,omitempty"`
	Outcomes    map[string]int `json:"outcomes"` // "alive": 9, "reset": 3
}

// Traffic is what goes over connections all the while; none over idle ones.
type Traffic string

const (
	Requests Traffic = "requests" // the client asks, and is answered
	Push     Traffic = "push"     // the endpoint sends, whatever the client does
)
