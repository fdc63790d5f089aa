package bucket

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// setLowWater fails only on a connection that is closed.
func setLowWater(conn syscall.RawConn, n int) {
	_ = conn.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n) })
}
