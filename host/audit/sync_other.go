//go:build !linux

package audit

import "os"

type osFile struct{ *os.File }
