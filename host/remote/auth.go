package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

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
	if l.PasswordFile != "" {
		how = append(how, "password of "+l.PasswordFile)
	}
	return strings.Join(how, ", ")
}

// methods reads the credentials of l. done must be called when the handshake is over.
func methods(ctx context.Context, l Login) (auth []ssh.AuthMethod, done func(), err error) {
	done = func() {}
	var signers []ssh.Signer
	if l.IdentityFile != "" {
		s, err := identity(l)
		if err != nil {
			return nil, done, err
		}
		signers = append(signers, s)
	}
	if l.Agent {
		more, close, err := agentKeys(ctx)
		if err != nil {
			return nil, done, err
		}
		done = close
		if signers = append(signers, more...); len(signers) == 0 {
			done()
			return nil, func() {}, failed("auth", "the agent at SSH_AUTH_SOCK offers no key; "+
				"ssh-add one")
		}
	}
	if len(signers) > 0 {
		auth = append(auth, ssh.PublicKeys(signers...))
	}
	if l.PasswordFile == "" {
		return auth, done, nil
	}
	p, err := secret(l.PasswordFile)
	if err != nil {
		done()
		return nil, func() {}, failed("auth", "reading password_file: %v", err)
	}
	return append(auth, passwords(strings.TrimRight(string(p), "\r\n"))...), done, nil
}

func agentKeys(ctx context.Context) (keys []ssh.Signer, done func(), err error) {
	sock := os.Getenv("SSH_AUTH_SOCK")
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", cmp.Or(sock, "/nonexistent"))
	if err != nil {
		return nil, nil, failed("auth", "reaching the agent at SSH_AUTH_SOCK=%q: %v; start "+
			"ssh-agent and ssh-add the key, or set agent = false", sock, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	done = func() { stop(); conn.Close() }
	if keys, err = agent.NewClient(conn).Signers(); err != nil {
		done()
		return nil, nil, failed("auth", "asking the agent at SSH_AUTH_SOCK for keys: %v", err)
	}
	return keys, done, nil
}

var errAsksMore = errors.New("the host asks for more than one hidden password")

// passwords answers a request for a password, once, and one hidden question (RFC 4256) for it. A
// host that asks for more, or shows what is typed, gets nothing.
func passwords(password string) []ssh.AuthMethod {
	asked := false
	return []ssh.AuthMethod{ssh.Password(password), ssh.KeyboardInteractive(
		func(_, _ string, questions []string, echo []bool) ([]string, error) {
			if len(questions) == 0 {
				return nil, nil
			}
			if len(questions) != 1 || echo[0] || asked {
				return nil, errAsksMore
			}
			asked = true
			return []string{password}, nil
		})}
}

func identity(l Login) (ssh.Signer, error) {
	bad := func(format string, args ...any) (ssh.Signer, error) {
		return nil, failed("auth", format, args...)
	}
	pem, err := secret(l.IdentityFile)
	if err != nil {
		return bad("reading identity_file: %v", err)
	}
	signer, err := ssh.ParsePrivateKey(pem)
	if missing := (*ssh.PassphraseMissingError)(nil); errors.As(err, &missing) {
		if l.PassphraseFile == "" {
			return bad("identity_file %s is encrypted; set passphrase_file, or use the agent",
				l.IdentityFile)
		}
		pass, err := secret(l.PassphraseFile)
		if err != nil {
			return bad("reading passphrase_file: %v", err)
		}
		pass = bytes.TrimRight(pass, "\r\n")
		if signer, err = ssh.ParsePrivateKeyWithPassphrase(pem, pass); err != nil {
			return bad("identity_file %s: passphrase_file %s does not open it", l.IdentityFile,
				l.PassphraseFile)
		}
	} else if err != nil {
		return bad("identity_file %s: %v; it must be a private key", l.IdentityFile, err)
	}
	if l.CertificateFile == "" {
		return signer, nil
	}
	line, err := os.ReadFile(l.CertificateFile)
	if err != nil {
		return bad("reading certificate_file: %v", err)
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(line)
	cert, isCert := key.(*ssh.Certificate)
	if err != nil || !isCert {
		return bad("certificate_file %s is not an OpenSSH certificate", l.CertificateFile)
	}
	certSigner, err := ssh.NewCertSigner(cert, signer)
	if err != nil {
		return bad("certificate_file %s does not belong to identity_file %s: %v",
			l.CertificateFile, l.IdentityFile, err)
	}
	return certSigner, nil
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
		return nil, fmt.Errorf("%s has %d bytes, which is no key or password", path, info.Size())
	}
	var b bytes.Buffer
	_, err = b.ReadFrom(f)
	return b.Bytes(), err
}
