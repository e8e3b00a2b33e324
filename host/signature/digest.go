package signature

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
)

const (
	// Namespace is what an OpenSSH signature of a module is for.
	Namespace = "caponier-plugin"
	// Max is the size of the largest signature, in bytes.
	Max = 64 << 10
)

// errOtherKey is matched by the error of a signature that names another key.
var errOtherKey = errors.New("other key")

// Digest is the digest of a module, or of a signature, as the lock writes it.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
