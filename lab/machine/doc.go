// Package machine makes the machines that cells run on and carries a job to them.
//
// There are two, and both are this very binary somewhere else: [Sandbox] re-executes it on this kernel in namespaces of its own,
// [VM] boots another kernel in QEMU with it as /init. In there main finds [IsAgent] true and calls [Serve], which sets the machine
// up, takes the [lab.Job] from the way in (a pipe, a virtio-serial port), hands it to the caller's handler and sends every
// [lab.Event] back as one line of JSON. Both runners end with their parent, also after kill -9: the kernel reclaims a sandbox,
// and QEMU is killed.
//
// What machines are made of comes from Debian's archive through the machine's own apt, signatures checked, and is kept in a
// [Cache]: kernels with their modules ([Cache.Kernel]) and userlands, the trees that hold the nft, iptables, ipset, ipvsadm,
// conntrack and kmod that kube-proxy calls ([Cache.Userland]). [Check] says what is missing here and which command mends it.
package machine
