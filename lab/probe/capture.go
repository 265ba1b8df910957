package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"
)

// CaptureOptions says what to capture.
type CaptureOptions struct {
	Interfaces []string // all Ethernet and loopback interfaces if empty
	SnapLen    int      // bytes kept of each packet; 256 if 0
	Limit      int      // bytes of the whole capture; 16 MiB if 0
}

// Capture records what passes interfaces of a namespace.
type Capture struct {
	sockets []*packetSocket
	cancel  context.CancelFunc
	reading sync.WaitGroup

	mu      sync.Mutex
	options CaptureOptions
	out     bytes.Buffer
	writer  *pcapgo.NgWriter
	packets int
	dropped int
	err     error
	stopped bool
}

// StartCapture captures from now on, until Stop or until ctx ends; Stop must be called in any case. It sees what comes in
// before netfilter and what goes out after it.
func StartCapture(ctx context.Context, ns Netns, o CaptureOptions) (*Capture, error) {
	if o.SnapLen == 0 {
		o.SnapLen = 256
	}
	if o.Limit == 0 {
		o.Limit = 16 << 20
	}
	links, err := captureLinks(ns, o.Interfaces)
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	c := &Capture{options: o}
	ctx, c.cancel = context.WithCancel(ctx)
	for i, l := range links {
		if err := c.add(ns, l); err != nil {
			c.Stop()
			return nil, fmt.Errorf("capture on %s: %w", l.Name, err)
		}
		s := c.sockets[i]
		c.reading.Go(func() { c.read(ctx, s, i, l.Flags&net.FlagLoopback != 0) })
	}
	return c, nil
}

// captureLinks returns the named interfaces, or all that carry Ethernet frames: loopback has their headers too.
func captureLinks(ns Netns, names []string) ([]net.Interface, error) {
	var all []net.Interface
	err := ns.Do(func() (err error) {
		all, err = net.Interfaces()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("interfaces: %w", err)
	}
	byName := map[string]net.Interface{}
	var links []net.Interface
	for _, l := range all {
		byName[l.Name] = l
		if len(names) == 0 && (l.Flags&net.FlagLoopback != 0 || len(l.HardwareAddr) == 6) {
			links = append(links, l)
		}
	}
	for _, name := range names {
		l, ok := byName[name]
		if !ok {
			return nil, fmt.Errorf("no interface %q", name)
		}
		links = append(links, l)
	}
	return links, nil
}

// add opens a socket on an interface and describes the interface in the capture.
func (c *Capture) add(ns Netns, l net.Interface) error {
	c.mu.Lock() // readers of other interfaces write already
	defer c.mu.Unlock()
	s, err := openPacket(ns, l.Index, unix.SOCK_RAW, unix.ETH_P_ALL)
	if err != nil {
		return err
	}
	c.sockets = append(c.sockets, s)
	description := pcapgo.NgInterface{Name: l.Name, LinkType: layers.LinkTypeEthernet, SnapLength: uint32(c.options.SnapLen), TimestampResolution: 9}
	if c.writer == nil {
		c.writer, err = pcapgo.NewNgWriterInterface(&c.out, description, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "kplab"}})
		return err
	}
	_, err = c.writer.AddInterface(description)
	return err
}

func (c *Capture) read(ctx context.Context, s *packetSocket, iface int, loopback bool) {
	release := interruptOn(ctx, s.file)
	defer release()
	buf := make([]byte, 128<<10)
	receive := func(fd uintptr) bool {
		return s.receive(fd, buf, func(p packet) bool {
			if !loopback || !p.outgoing { // loopback shows each packet twice
				c.record(iface, p)
			}
			return false
		})
	}
	s.raw.Read(receive) // until ctx ends
	s.raw.Control(func(fd uintptr) { receive(fd) })
}

// record writes one packet, or counts it as dropped when the capture is full.
func (c *Capture) record(iface int, p packet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := p.data[:min(len(p.data), c.options.SnapLen)]
	const blockHeader = 32
	if c.out.Len()+len(kept)+blockHeader > c.options.Limit || c.err != nil {
		c.dropped++
		return
	}
	c.err = c.writer.WritePacket(gopacket.CaptureInfo{Timestamp: p.time, CaptureLength: len(kept), Length: p.length, InterfaceIndex: iface}, kept)
	if c.err == nil {
		c.err = c.writer.Flush()
	}
	c.packets++
}

// Stop ends the capture and returns it in pcapng format, with everything that had passed before the call. Further calls
// return the same.
func (c *Capture) Stop() ([]byte, error) {
	c.cancel()
	c.reading.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped {
		c.stopped = true
		for _, s := range c.sockets {
			dropped, err := s.close()
			c.dropped += dropped
			c.err = errors.Join(c.err, err)
		}
		if c.writer != nil {
			c.err = errors.Join(c.err, c.writer.Flush())
		}
	}
	return c.out.Bytes(), c.err
}

// Packets counts what the capture holds, and what it lacks because it was full or came too fast (known after Stop).
func (c *Capture) Packets() (held, dropped int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.packets, c.dropped
}

// close closes the socket and returns how many packets the kernel dropped for want of room.
func (s *packetSocket) close() (dropped int, err error) {
	var stats *unix.TpacketStats
	var statsErr error
	err = s.raw.Control(func(fd uintptr) {
		stats, statsErr = unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS)
	})
	if stats != nil {
		dropped = int(stats.Drops)
	}
	return dropped, errors.Join(err, os.NewSyscallError("getsockopt PACKET_STATISTICS", statsErr), s.file.Close())
}
