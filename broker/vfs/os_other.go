//go:build !linux

package vfs

import (
	"errors"
	"os"
)

// syncData has no cheaper form than a full sync outside Linux.
func syncData(f *os.File) error { return f.Sync() }

// reserve is for Linux alone.
func reserve(*os.File, int64, int64) {}

func readNoFurther(*os.File) error { return nil }

// punchHole is for Linux alone, as sendfile is.
func punchHole(*os.File, int64, int64) error { return errors.ErrUnsupported }
