//go:build !linux

package bucket

import "syscall"

func setLowWater(syscall.RawConn, int) {}
