package observe

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// Asker asks a server of this machine for its health.
type Asker struct {
	scheme string
	client *http.Client
}

// NewAsker makes an asker of servers with the certificate in the file, or, where that is "", of
// servers without TLS.
func NewAsker(cert string) (*Asker, error) {
	scheme, transport := "http", &http.Transport{}
	if cert != "" {
		var err error
		scheme = "https"
		if transport.TLSClientConfig, err = pinned(cert); err != nil {
			return nil, err
		}
	}
	return &Asker{scheme, &http.Client{Timeout: 4 * time.Second, Transport: transport}}, nil
}

// Ask returns the answer of the server at an address, also with the error that it is not healthy.
func (a *Asker) Ask(addr string) ([]byte, error) {
	res, err := a.client.Get(a.scheme + "://" + addr + "/health")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<16))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("the server at %s says %s", addr, res.Status)
	}
	return body, err
}

// pinned trusts only the certificate in the file, for any name: the caller knows only an address.
func pinned(file string) (*tls.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s holds no PEM certificate", file)
	}
	return &tls.Config{
		InsecureSkipVerify: true, // in favour of the comparison below
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			if len(raw) == 0 || !bytes.Equal(raw[0], block.Bytes) {
				return errors.New("the server shows another certificate than " + file +
					"; restart it if that is newer")
			}
			return nil
		},
	}, nil
}
