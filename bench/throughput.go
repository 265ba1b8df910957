package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"kplab/lab"
)

const (
	slicesOfTime = 10 // in which the paths take turns
	inFlight     = 32 // connections that are begun together
	datagram     = 64 // bytes of payload
	udpBurst     = 256
	leastArrived = 0.9 // of the datagrams sent: with fewer, what is measured is how they are lost
)

func (s *site) throughputName(kind, path string) string {
	return fmt.Sprintf("Throughput/kind=%s/path=%s/services=%d/mode=%s", kind, path, s.trial.Services, s.trial.Mode)
}

// throughput measures how many connections and how many packets a second pass, to the Service in the middle and to an endpoint itself.
// One thread of the client sends; a second would compete with it for the processor on which the packets are forwarded.
func (s *site) throughput(ctx context.Context, keep func(lab.Measurement)) error {
	points, err := s.points(ctx)
	if err != nil {
		return report(keep, lab.Measurement{Name: s.throughputName("connections", "clusterip")}, err)
	}
	var paths []point
	for _, p := range points {
		if p.path == "direct" || p.path == "clusterip" && p.position == "middle" {
			paths = append(paths, p)
		}
	}
	if err := s.connections(ctx, paths, keep); err != nil {
		return report(keep, lab.Measurement{Name: s.throughputName("connections", "clusterip")}, err)
	}
	if err := s.packets(ctx, keep); err != nil {
		return report(keep, lab.Measurement{Name: s.throughputName("packets", "clusterip")}, err)
	}
	return nil
}

// tally is what one path has come to.
type tally struct {
	n    int
	took time.Duration
}

// inTurns does work for each of n paths in turns, for the trial's duration each, on the client's thread.
func (s *site) inTurns(ctx context.Context, n int, work func(path int) (int, error)) ([]tally, error) {
	all := make([]tally, n)
	err := s.client.Do(func() error {
		defer pin()()
		for range slicesOfTime {
			for i := range all {
				for began := time.Now(); ; {
					if ctx.Err() != nil {
						return context.Cause(ctx)
					}
					done, err := work(i)
					if err != nil {
						return err
					}
					all[i].n += done
					if passed := time.Since(began); passed >= s.trial.Duration/slicesOfTime {
						all[i].took += passed
						break
					}
				}
			}
		}
		return nil
	})
	return all, err
}

func (s *site) connections(ctx context.Context, paths []point, keep func(lab.Measurement)) error {
	patience := s.deadlines.Of(connectMost)
	tallies, err := s.inTurns(ctx, len(paths), func(path int) (int, error) {
		var attempts []attempt
		defer func() {
			for _, a := range attempts {
				a.end()
			}
			s.sink.drain()
		}()
		for range inFlight {
			a, err := begin(paths[path].target)
			if err != nil {
				return 0, err
			}
			attempts = append(attempts, a)
		}
		for _, a := range attempts {
			if err := a.await(patience); err != nil {
				return 0, fmt.Errorf("connection to %s: %w", paths[path].target, err)
			}
		}
		return inFlight, nil
	})
	if err != nil {
		return err
	}
	for i, t := range tallies {
		keep(lab.Measurement{
			Name: s.throughputName("connections", paths[i].path), Iters: t.n,
			Values: []lab.Value{{Value: round(float64(t.n) / t.took.Seconds()), Unit: "connections/s"}},
		})
	}
	return nil
}

// packets sends UDP datagrams of one flow for each path. s1 does not read them: its kernel counts what arrives.
func (s *site) packets(ctx context.Context, keep func(lab.Measurement)) error {
	svc := newService("udp", 1, &s.pool)
	svc.object.Spec.Ports[0].Protocol = corev1.ProtocolUDP
	svc.slices[0].Ports[0].Protocol = new(corev1.ProtocolUDP)
	if err := s.apply(ctx, svc); err != nil {
		return err
	}
	if err := s.proxy.WaitSynced(ctx); err != nil {
		return err
	}
	var endpoint netip.AddrPort
	for a := range svc.endpoints() {
		endpoint = a
	}
	listener, err := udpSocket(s.server, func(fd int) error { return unix.Bind(fd, &unix.SockaddrInet4{Port: int(endpoint.Port())}) })
	if err != nil {
		return err
	}
	defer unix.Close(listener)
	names, senders := []string{"direct", "clusterip"}, []int{}
	for _, target := range []netip.AddrPort{endpoint, svc.clusterIP()} {
		fd, err := udpSocket(s.client, func(fd int) error {
			return unix.Connect(fd, &unix.SockaddrInet4{Addr: target.Addr().As4(), Port: int(target.Port())})
		})
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		senders = append(senders, fd)
	}
	payload := make([]byte, datagram)
	arrived := make([]int64, len(senders))
	before, err := s.delivered()
	if err != nil {
		return err
	}
	last := 0
	tallies, err := s.inTurns(ctx, len(senders), func(path int) (int, error) {
		if path != last {
			now, err := s.delivered()
			if err != nil {
				return 0, err
			}
			arrived[last] += now - before
			before, last = now, path
		}
		for range udpBurst {
			if _, err := unix.Write(senders[path], payload); err != nil && err != unix.ENOBUFS && err != unix.EINTR {
				return 0, os.NewSyscallError("send a datagram", err)
			}
		}
		return udpBurst, nil
	})
	if err != nil {
		return err
	}
	now, err := s.delivered()
	if err != nil {
		return err
	}
	arrived[last] += now - before
	for i, t := range tallies {
		if float64(arrived[i]) < leastArrived*float64(t.n) {
			return fmt.Errorf("%d of %d datagrams over path %s have arrived", arrived[i], t.n, names[i])
		}
		keep(lab.Measurement{
			Name: s.throughputName("packets", names[i]), Iters: t.n,
			Values: []lab.Value{{Value: round(float64(arrived[i]) / t.took.Seconds()), Unit: "packets/s"}},
		})
	}
	return s.remove(ctx, svc)
}

func udpSocket(h lab.Host, then func(fd int) error) (fd int, err error) {
	err = h.Do(func() error {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return os.NewSyscallError("socket", err)
		}
		if err := then(fd); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		return nil
	})
	return fd, err
}

// delivered is how many IPv4 packets s1's kernel has taken for itself (InDelivers of RFC 4293).
func (s *site) delivered() (int64, error) {
	// The network namespace of a process is its main thread's: that of s1 has to be read on its own.
	var text []byte
	err := s.server.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/snmp")
		return err
	})
	if err != nil {
		return 0, err
	}
	var header []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "Ip:" {
			continue
		}
		if header == nil {
			header = fields
			continue
		}
		for i, name := range header {
			if name == "InDelivers" && i < len(fields) {
				return strconv.ParseInt(fields[i], 10, 64)
			}
		}
	}
	return 0, errors.New("/proc/net/snmp has no InDelivers")
}
