package main

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/observe"
	"github.com/caponier-mcp/caponier/host/plaintext"
)

// No secret of the configuration gets into the log: not as a value, not in an error, not with the
// whole struct that holds it.
func TestSecretsCannotBeLogged(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	file := filepath.Join(t.TempDir(), "config.toml")
	t.Setenv("HOOK_SECRET", `correct "horse" battery`)
	if err := os.WriteFile(file, []byte("[approval.webhook]\nurl = \"https://hook.example.org\"\nsecret = \"${HOOK_SECRET}\"\n[[egress.credentials]]\nname = \"api\"\norigins = [\"https://api.example.org\"]\ntools = [\"x\"]\nheader = \"Authorization\"\nsecret = \"sk-1234567890\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	secrets := c.Secrets
	if len(secrets) != 2 {
		t.Fatalf("found %q", secrets)
	}
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		slog.SetDefault(observe.LogOptions{Format: format}.Logger(plaintext.Without(&out, secrets)))
		slog.Error("it went wrong", "webhook", c.Approval.Webhook,
			"all", fmt.Sprintf("%+v", c.Egress), "error", errors.New("401 for sk-1234567890"))
		slog.With("secret", c.Approval.Webhook.Secret).Info(c.Approval.Webhook.Secret)
		log.Print("the standard library's: ", c.Approval.Webhook.Secret)
		got := out.String()
		if strings.Contains(got, "horse") || strings.Contains(got, "1234567890") ||
			strings.Count(got, "[redacted]") < 6 || strings.Count(got, "\n") != 3 {
			t.Errorf("%s: the log says %s", format, got)
		}
	}
}
