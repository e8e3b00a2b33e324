//go:build !linux

package shadow

import "errors"

func exchange(_, _ string) error { return errors.New("this needs Linux") }
