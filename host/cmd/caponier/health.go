package main

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

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/spf13/cobra"
)

func healthCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "health ADDR",
		Short: "Ask a server of this configuration whether it is healthy: for supervisors in " +
			"images that have no other program",
		Args: cobra.ExactArgs(1),
		RunE: g.with(func(v *verb, c *config.Config) error {
			scheme, transport := "http", &http.Transport{}
			if c.Front.TLSCert != "" {
				scheme = "https"
				var err error
				if transport.TLSClientConfig, err = pinned(c.Front.TLSCert); err != nil {
					return usage(err)
				}
			}
			client := &http.Client{Timeout: 4 * time.Second, Transport: transport}
			res, err := client.Get(scheme + "://" + v.args[0] + "/health")
			if err != nil {
				return err
			}
			defer res.Body.Close()
			body, err := io.ReadAll(io.LimitReader(res.Body, 1<<16))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(v.out, "%s\n", bytes.TrimSpace(body))
			if err == nil && res.StatusCode != http.StatusOK {
				err = fmt.Errorf("the server at %s says %s", v.args[0], res.Status)
			}
			return err
		}),
	}
}

// pinned trusts the certificate in the file and no other, whatever name it is for: the server is
// asked by its address.
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
