package kindenv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ask asks a subsystem of netfilter in the host's network namespace; seen is given each attribute of each answer.
func (h *host) ask(subsystem, command, flags int, with []*nl.RtAttr, seen func(kind uint16, value []byte)) error {
	return h.Do(func() error {
		req := nl.NewNetlinkRequest(subsystem<<8|command, flags)
		req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: unix.NFNETLINK_V0})
		for _, a := range with {
			req.AddData(a)
		}
		answers, err := req.Execute(unix.NETLINK_NETFILTER, 0)
		if err != nil {
			return err
		}
		for _, answer := range answers {
			attributes, err := nl.ParseRouteAttr(answer[nl.SizeofNfgenmsg:])
			if err != nil {
				return err
			}
			for _, a := range attributes {
				seen(a.Attr.Type&nl.NLA_TYPE_MASK, a.Value)
			}
		}
		return nil
	})
}

// generation numbers the states of the nftables ruleset of the host's network namespace, which iptables-nft writes as well. It is 0 on a kernel
// without nftables.
func (h *host) generation() (id uint32, err error) {
	err = h.ask(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETGEN, 0, nil, func(kind uint16, value []byte) {
		if kind == unix.NFTA_GEN_ID && len(value) == 4 {
			id = binary.BigEndian.Uint32(value)
		}
	})
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("%s: generation of the nftables ruleset: %w", h.Name(), err)
	}
	return id, nil
}

// listNames is IPSET_FLAG_LIST_SETNAME of linux/netfilter/ipset/ip_set.h: names, without the sets.
const listNames = 1 << 1

// ipsets lists their names; a kernel without ipset has none.
func (h *host) ipsets() (names []string, err error) {
	with := []*nl.RtAttr{
		nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)),
		nl.NewRtAttr(nl.IPSET_ATTR_FLAGS|unix.NLA_F_NET_BYTEORDER, binary.BigEndian.AppendUint32(nil, listNames)),
	}
	err = h.ask(unix.NFNL_SUBSYS_IPSET, nl.IPSET_CMD_LIST, unix.NLM_F_DUMP, with, func(kind uint16, value []byte) {
		if kind == nl.IPSET_ATTR_SETNAME {
			names = append(names, strings.TrimRight(string(value), "\x00"))
		}
	})
	if errors.Is(err, unix.EINVAL) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: ipsets: %w", h.Name(), err)
	}
	return names, nil
}
