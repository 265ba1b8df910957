package bench

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// connectRaw is connect(2) on a blocking IPv4 socket, without a word to the Go scheduler: it holds a processor until it returns.
func connectRaw(fd int, target netip.AddrPort) unix.Errno {
	address := unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: target.Addr().As4()}
	port := (*[2]byte)(unsafe.Pointer(&address.Port))
	port[0], port[1] = byte(target.Port()>>8), byte(target.Port())
	_, _, errno := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&address)), unsafe.Sizeof(address))
	return errno
}
