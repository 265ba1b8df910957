package script

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"kplab/lab"
)

// nftSetCommands write what another program on the node would write with an nft of its own.
func (s *session) nftSetCommands() map[string]command {
	return map[string]command{
		"newer-nft-set": {
			args:    "add|delete NODE TABLE SET",
			summary: "make an IPv4 table and, in it, a set of interface names as nft 1.1.3 and later write it, whatever nft the userland has; or delete the table",
			detail: []string{"That nft stores with each set an expression to print its type by, for a plain type a constant. nft before 1.0.6.1 cannot read a constant there and crashes " +
				"when it lists the set, or anything for which it looks at all tables (kubernetes/kubernetes#136786)."},
			parse: func(args []string) (action, error) {
				if len(args) != 4 || args[0] != "add" && args[0] != "delete" {
					return nil, errors.New("expected add or delete, a node, a table and a set")
				}
				do := addNewerSet
				if args[0] == "delete" {
					do = func(table, _ string) error { return deleteTable(table) }
				}
				return s.onNode(2, func(_ context.Context, n lab.Node, rest []string) error {
					if err := n.Do(func() error { return do(rest[0], rest[1]) }); err != nil {
						return fmt.Errorf("%s: %s nft set %s of table ip %s: %w", n.Name(), args[0], rest[1], rest[0], err)
					}
					return nil
				})(args[1:])
			},
		},
	}
}

// newerSetDescription is the user data of a set of type ifname by nft 1.1.3: the key's byte order (host), then the key's
// type as an expression, EXPR_VALUE, without data. Each item is type, length, value (libnftnl, udata.h).
var newerSetDescription = []byte{
	0, 4, 1, 0, 0, 0, // NFTNL_UDATA_SET_KEYBYTEORDER: BYTEORDER_HOST_ENDIAN
	3, 8, // NFTNL_UDATA_SET_KEY_TYPEOF
	0, 4, 4, 0, 0, 0, // NFTNL_UDATA_SET_TYPEOF_EXPR: EXPR_VALUE
	1, 0, // NFTNL_UDATA_SET_TYPEOF_DATA
}

// addNewerSet does `nft 'add table ip TABLE; add set ip TABLE SET { type ifname; }'` in the current network namespace.
func addNewerSet(table, set string) error {
	const ifname = 41 // TYPE_IFNAME of nft
	return nftTransaction(
		nftMessage{unix.NFT_MSG_NEWTABLE, netlink.Create, func(a *netlink.AttributeEncoder) {
			a.String(unix.NFTA_TABLE_NAME, table)
		}},
		nftMessage{unix.NFT_MSG_NEWSET, netlink.Create, func(a *netlink.AttributeEncoder) {
			a.String(unix.NFTA_SET_TABLE, table)
			a.String(unix.NFTA_SET_NAME, set)
			a.Uint32(unix.NFTA_SET_FLAGS, 0)
			a.Uint32(unix.NFTA_SET_KEY_TYPE, ifname)
			a.Uint32(unix.NFTA_SET_KEY_LEN, unix.IFNAMSIZ)
			a.Uint32(unix.NFTA_SET_ID, 1)
			a.Bytes(unix.NFTA_SET_USERDATA, newerSetDescription)
		}})
}

// deleteTable does `nft delete table ip TABLE`, which an nft that cannot read the table's sets cannot.
func deleteTable(table string) error {
	return nftTransaction(nftMessage{unix.NFT_MSG_DELTABLE, 0, func(a *netlink.AttributeEncoder) { a.String(unix.NFTA_TABLE_NAME, table) }})
}

// nftMessage is one message of a transaction of nf_tables, about the IPv4 family.
type nftMessage struct {
	kind  uint16
	flags netlink.HeaderFlags
	attrs func(*netlink.AttributeEncoder)
}

// nftTransaction sends messages as one transaction and returns when the kernel has taken it.
func nftTransaction(messages ...nftMessage) error {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	batch := []netlink.Message{batchMark(unix.NFNL_MSG_BATCH_BEGIN)}
	for _, m := range messages {
		encoder := netlink.NewAttributeEncoder()
		encoder.ByteOrder = binary.BigEndian
		m.attrs(encoder)
		attrs, err := encoder.Encode()
		if err != nil {
			return err
		}
		batch = append(batch, netlink.Message{
			Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | m.kind), Flags: netlink.Request | netlink.Acknowledge | m.flags},
			Data:   append([]byte{unix.AF_INET, unix.NFNETLINK_V0, 0, 0}, attrs...),
		})
	}
	if _, err := conn.SendMessages(append(batch, batchMark(unix.NFNL_MSG_BATCH_END))); err != nil {
		return err
	}
	for acknowledged := 0; acknowledged < len(messages); {
		replies, err := conn.Receive() // a refused message is an error here
		if err != nil {
			return err
		}
		acknowledged += len(replies)
	}
	return nil
}

// batchMark begins or ends a transaction of nf_tables.
func batchMark(kind int) netlink.Message {
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES},
	}
}
