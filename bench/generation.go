package bench

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"kplab/lab"
)

// generationClock reads a node's nf_tables generation, which each committed transaction raises. Asking costs the kernel next to
// nothing; subscribing to its notifications would make it write every rule of a transaction out, 180,000 of them for 30,000 Services
// in iptables mode, and would spoil what is measured.
type generationClock struct {
	fd      int
	request []byte
	buffer  []byte
}

func newGenerationClock(h lab.Host) (*generationClock, error) {
	c := &generationClock{fd: -1, buffer: make([]byte, 1024)}
	err := h.Do(func() (err error) {
		c.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		return unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5})
	})
	if err != nil {
		c.close()
		return nil, fmt.Errorf("%s: nfnetlink socket: %w", h.Name(), err)
	}
	// nlmsghdr and nfgenmsg, in the machine's byte order.
	c.request = make([]byte, unix.SizeofNlMsghdr+4)
	binary.NativeEndian.PutUint32(c.request[0:], uint32(len(c.request)))
	binary.NativeEndian.PutUint16(c.request[4:], unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN)
	binary.NativeEndian.PutUint16(c.request[6:], unix.NLM_F_REQUEST)
	return c, nil
}

// now returns the generation: it differs from an earlier one if a transaction was committed since.
func (c *generationClock) now() (uint32, error) {
	if err := unix.Sendto(c.fd, c.request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, os.NewSyscallError("ask for the nf_tables generation: sendto", err)
	}
	n, _, err := unix.Recvfrom(c.fd, c.buffer, 0)
	if err != nil {
		return 0, os.NewSyscallError("ask for the nf_tables generation: recvfrom", err)
	}
	const header = unix.SizeofNlMsghdr + 4
	b := c.buffer[:n]
	if n < header || binary.NativeEndian.Uint16(b[4:]) != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN {
		return 0, fmt.Errorf("ask for the nf_tables generation: the kernel answers %x", b)
	}
	for b = b[header:]; len(b) >= 4; {
		size, typ := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])
		if size < 4 || size > len(b) {
			break
		}
		if typ == unix.NFTA_GEN_ID && size >= 8 {
			return binary.BigEndian.Uint32(b[4:]), nil
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return 0, fmt.Errorf("ask for the nf_tables generation: the answer holds none")
}

func (c *generationClock) close() {
	if c.fd >= 0 {
		unix.Close(c.fd)
		c.fd = -1
	}
}
