package bench

import (
	"errors"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// attempt is a connection on its way, made without waiting. Its calls belong on the client's thread, or anywhere once it is begun.
type attempt struct {
	fd    int
	began time.Time
}

var closeWithReset = unix.Linger{Onoff: 1, Linger: 0} // neither TIME_WAIT nor a FIN that the queue would hold

// begin has the kernel send a SYN. The caller is on the client's thread, and ends the attempt.
func begin(target netip.AddrPort) (attempt, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return attempt{}, os.NewSyscallError("socket", err)
	}
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &closeWithReset) // of a socket that is open
	a := attempt{fd: fd, began: time.Now()}
	_ = unix.Connect(fd, &unix.SockaddrInet4{Addr: target.Addr().As4(), Port: int(target.Port())}) // state tells
	return a, nil
}

// state is what has become of the attempt: pending is true as long as it may still turn out; failure is nil where it is connected.
func (a attempt) state() (pending bool, failure error) {
	fds := []unix.PollFd{{Fd: int32(a.fd), Events: unix.POLLOUT}}
	if n, err := unix.Poll(fds, 0); err == unix.EINTR || err == nil && n == 0 {
		return true, nil
	}
	errno, err := unix.GetsockoptInt(a.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	switch {
	case err != nil:
		return false, err
	case errno != 0:
		return false, unix.Errno(errno)
	}
	if _, err := unix.Getpeername(a.fd); err != nil {
		return false, err // connect failed at once and its error has been read
	}
	return false, nil
}

// await returns when the attempt has turned out; a timeout is errNoAnswer.
func (a attempt) await(patience time.Duration) error {
	for {
		left := patience - time.Since(a.began)
		if left <= 0 {
			return errNoAnswer
		}
		fds := []unix.PollFd{{Fd: int32(a.fd), Events: unix.POLLOUT}}
		timeout := unix.NsecToTimespec(left.Nanoseconds())
		if _, err := unix.Ppoll(fds, &timeout, nil); err != nil && err != unix.EINTR {
			return os.NewSyscallError("ppoll", err)
		}
		if pending, failure := a.state(); !pending {
			return failure
		}
	}
}

func (a attempt) end() { unix.Close(a.fd) }

var errNoAnswer = errors.New("no answer")

// outcome names what an attempt came to as [lab.Attempt] does.
func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, errNoAnswer), errors.Is(err, unix.ETIMEDOUT):
		return "timeout"
	case errors.Is(err, unix.ECONNREFUSED):
		return "refused"
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return "reset"
	}
	return "unreachable"
}

// try connects once and reports where the connection arrived, if it did.
func (s *site) try(target netip.AddrPort, patience time.Duration) (began time.Time, arrived []netip.AddrPort, err error) {
	a, err := begin(target)
	if err != nil {
		return time.Time{}, nil, err
	}
	defer a.end()
	err = a.await(patience)
	// Connections are in the queue when the client's ACK has passed, and that passes as the SYN-ACK did.
	return a.began, s.sink.drain(), err
}

// nap pauses the calling thread: package time rounds pauses below a millisecond up to one.
func nap(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&t, nil) // a signal ends it early, and that is as good
}
