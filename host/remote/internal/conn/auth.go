package conn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// offered says which credentials are used for a login.
func offered(l Login) string {
	var how []string
	if l.IdentityFile != "" {
		how = append(how, "key "+l.IdentityFile)
	}
	if l.Agent {
		how = append(how, "the agent")
	}
	return strings.Join(how, ", ")
}

// keys returns the keys that log in at l, at least one. done must be called when the handshake is
// over. An error is of this machine: no host was asked.
func keys(ctx context.Context, l Login) (all []ssh.Signer, done func(), err error) {
	done = func() {}
	if l.IdentityFile != "" {
		s, err := identity(l)
		if err != nil {
			return nil, done, effect.Failed("credentials", "%v", err)
		}
		all = append(all, s)
	}
	if !l.Agent {
		return all, done, nil
	}
	sock := os.Getenv("SSH_AUTH_SOCK")
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", cmp.Or(sock, "/nonexistent"))
	if err != nil {
		return nil, done, effect.Failed("credentials",
			"reaching the agent at SSH_AUTH_SOCK=%q: %v; start "+
				"ssh-agent and ssh-add the key, or set agent = false", sock, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	done = func() { stop(); conn.Close() }
	more, err := agent.NewClient(conn).Signers()
	if err != nil {
		return nil, done, effect.Failed("credentials",
			"asking the agent at SSH_AUTH_SOCK for keys: %v", err)
	}
	if all = append(all, more...); len(all) == 0 {
		return nil, done, effect.Failed("credentials",
			"the agent at SSH_AUTH_SOCK offers no key; ssh-add one")
	}
	return all, done, nil
}

// identity reads the private key of l, and its certificate if there is one.
func identity(l Login) (ssh.Signer, error) {
	pem, err := secret(l.IdentityFile)
	if err != nil {
		return nil, fmt.Errorf("reading identity_file: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(pem)
	if missing := (*ssh.PassphraseMissingError)(nil); errors.As(err, &missing) {
		return nil, fmt.Errorf("identity_file %s is encrypted; ssh-add it and set agent = true, "+
			"or use a key without a passphrase", l.IdentityFile)
	} else if err != nil {
		return nil, fmt.Errorf("identity_file %s: %w; it must be a private key", l.IdentityFile,
			err)
	}
	if l.CertificateFile == "" {
		return signer, nil
	}
	line, err := os.ReadFile(l.CertificateFile)
	if err != nil {
		return nil, fmt.Errorf("reading certificate_file: %w", err)
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(line)
	cert, isCert := key.(*ssh.Certificate)
	if err != nil || !isCert {
		return nil, fmt.Errorf("certificate_file %s is not an OpenSSH certificate",
			l.CertificateFile)
	}
	if signer, err = ssh.NewCertSigner(cert, signer); err != nil {
		return nil, fmt.Errorf("certificate_file %s does not belong to identity_file %s: %w",
			l.CertificateFile, l.IdentityFile, err)
	}
	return signer, nil
}

// secret reads a file that only its owner may read.
func secret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %#o; others may read it: chmod 600", path, mode)
	}
	if info.Size() > 64<<10 {
		return nil, fmt.Errorf("%s has %d bytes, which is no key", path, info.Size())
	}
	return io.ReadAll(f)
}
