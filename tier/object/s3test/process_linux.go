package s3test

import "syscall"

// dieWithParent ends a server with a test that is killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
