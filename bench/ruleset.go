package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"kplab/lab"
)

// nftVariant reports whether the machine's iptables writes nf_tables rules.
func nftVariant(m lab.Machine) bool { return strings.Contains(m.Tools["iptables"], "nf_tables") }

// ruleset counts what a kube-proxy has programmed on a node.
type ruleset struct {
	rules    int // of iptables and nftables
	elements int // of nftables sets and maps, and of ipsets
	virtual  int // virtual servers of IPVS
	real     int // real servers behind them
}

// count counts. It asks the kernel itself where it can, since nft and iptables-save take seconds to write 100,000 rules.
func (s *site) count(ctx context.Context, mode lab.Mode) (r ruleset, err error) {
	if mode == lab.NFTables || nftVariant(s.machine) {
		err = s.node.Do(func() (err error) {
			r.rules, r.elements, err = countNFTables()
			return err
		})
	} else {
		for _, save := range []string{"iptables-save", "ip6tables-save"} {
			out, err := s.node.Run(ctx, save)
			if err != nil {
				return r, err
			}
			r.rules += strings.Count("\n"+out, "\n-A ")
		}
	}
	if err != nil {
		return r, fmt.Errorf("%s: count rules: %w", s.node.Name(), err)
	}
	if mode != lab.IPVS {
		return r, nil
	}
	out, err := s.node.Run(ctx, "ipset", "save")
	if err != nil {
		return r, err
	}
	r.elements += strings.Count("\n"+out, "\nadd ")
	if out, err = s.node.Run(ctx, "ipvsadm", "-Sn"); err != nil {
		return r, err
	}
	r.virtual, r.real = strings.Count("\n"+out, "\n-A "), strings.Count("\n"+out, "\n-a ")
	return r, nil
}

// countNFTables counts the rules, and the elements of all sets and maps, in the calling thread's network namespace.
func countNFTables() (rules, elements int, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return 0, 0, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	d := dump{fd: fd, buffer: make([]byte, 256<<10)}
	if err := d.run(unix.NFT_MSG_GETRULE, unix.NFPROTO_UNSPEC, nil, func(byte, []byte) { rules++ }); err != nil {
		return 0, 0, err
	}
	type set struct {
		family      byte
		table, name []byte
	}
	var sets []set
	err = d.run(unix.NFT_MSG_GETSET, unix.NFPROTO_UNSPEC, nil, func(family byte, b []byte) {
		s := set{family: family}
		attributes(b, func(typ uint16, value []byte) {
			switch typ {
			case unix.NFTA_SET_TABLE:
				s.table = append([]byte(nil), value...)
			case unix.NFTA_SET_NAME:
				s.name = append([]byte(nil), value...)
			}
		})
		sets = append(sets, s)
	})
	if err != nil {
		return 0, 0, err
	}
	for _, s := range sets {
		var named []byte
		named = appendAttribute(named, unix.NFTA_SET_ELEM_LIST_TABLE, s.table)
		named = appendAttribute(named, unix.NFTA_SET_ELEM_LIST_SET, s.name)
		err := d.run(unix.NFT_MSG_GETSETELEM, s.family, named, func(_ byte, b []byte) {
			attributes(b, func(typ uint16, value []byte) {
				if typ == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
					attributes(value, func(uint16, []byte) { elements++ })
				}
			})
		})
		if err != nil {
			return 0, 0, err
		}
	}
	return rules, elements, nil
}

// dump lists kernel objects message by message: a library would hold all of them at once.
type dump struct {
	fd     int
	buffer []byte
}

const nfgenSize = 4 // struct nfgenmsg

// run asks for all objects of a kind and calls each with the family and the attributes of every one.
func (d *dump) run(message uint16, family byte, attrs []byte, each func(family byte, attrs []byte)) error {
	request := make([]byte, unix.SizeofNlMsghdr+nfgenSize, unix.SizeofNlMsghdr+nfgenSize+len(attrs))
	binary.NativeEndian.PutUint16(request[4:], unix.NFNL_SUBSYS_NFTABLES<<8|message)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	request[unix.SizeofNlMsghdr] = family
	request = append(request, attrs...)
	binary.NativeEndian.PutUint32(request[0:], uint32(len(request)))
	if err := unix.Sendto(d.fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	for {
		n, _, err := unix.Recvfrom(d.fd, d.buffer, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return os.NewSyscallError("recvfrom", err)
		}
		for b := d.buffer[:n]; len(b) >= unix.SizeofNlMsghdr; {
			size := int(binary.NativeEndian.Uint32(b))
			if size < unix.SizeofNlMsghdr || size > len(b) {
				return fmt.Errorf("nfnetlink: a message of %d bytes in %d", size, len(b))
			}
			switch binary.NativeEndian.Uint16(b[4:]) {
			case unix.NLMSG_DONE:
				return nil
			case unix.NLMSG_ERROR:
				if size >= unix.SizeofNlMsghdr+4 {
					if code := int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:])); code != 0 {
						return fmt.Errorf("nfnetlink: message %d: %w", message, unix.Errno(-code))
					}
				}
			default:
				if size >= unix.SizeofNlMsghdr+nfgenSize {
					each(b[unix.SizeofNlMsghdr], b[unix.SizeofNlMsghdr+nfgenSize:size])
				}
			}
			b = b[min((size+3)&^3, len(b)):]
		}
	}
}

// attributes calls each with the type and value of every netlink attribute in b.
func attributes(b []byte, each func(typ uint16, value []byte)) {
	for len(b) >= unix.SizeofNlAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofNlAttr || size > len(b) {
			return
		}
		each(binary.NativeEndian.Uint16(b[2:])&^unix.NLA_F_NESTED, b[unix.SizeofNlAttr:size])
		b = b[min((size+3)&^3, len(b)):]
	}
}

func appendAttribute(b []byte, typ uint16, value []byte) []byte {
	size := unix.SizeofNlAttr + len(value)
	b = binary.NativeEndian.AppendUint16(b, uint16(size))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = append(b, value...)
	for range (4 - size%4) % 4 {
		b = append(b, 0)
	}
	return b
}
