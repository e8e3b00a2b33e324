//go:build conformance && dex

package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// The page's configurations of Dex and of this host fit together: a TypeScript client signs in, and
// goes on when its token ends.
func TestDexAsThePageHasIt(t *testing.T) {
	page, err := os.ReadFile("../../docs/identity/dex.md")
	if err != nil {
		t.Fatal(err)
	}
	fence := func(info string) string {
		return string(regexp.MustCompile("(?s)```" + info + "\n(.*?)```").FindSubmatch(page)[1])
	}
	hash, err := bcrypt.GenerateFromPassword([]byte("a password of a test"), bcrypt.MinCost+6)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", free(t))
	issuer := "http://" + address + "/dex"
	config := strings.NewReplacer("https://login.example.org/dex", issuer,
		"{type: sqlite3, config: {file: /var/lib/dex/dex.db}}", "{type: memory}",
		"127.0.0.1:5556", address, "$2b$12$…", string(hash), "10m", "5s",
	).Replace(fence("yaml dex.yaml"))
	file := filepath.Join(t.TempDir(), "dex.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Getenv("DEX"), "serve", file)
	var log bytes.Buffer
	cmd.Stderr, cmd.Stdout = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	up := false
	for began := time.Now(); !up && time.Since(began) < 30*time.Second; {
		time.Sleep(100 * time.Millisecond)
		res, err := http.Get(issuer + "/.well-known/openid-configuration")
		if up = err == nil && res.StatusCode == 200; err == nil {
			res.Body.Close()
		}
	}
	own := fence("toml oidc.toml")
	own = strings.Replace(own, "https://login.example.org/dex", issuer, 1)
	url, ended := protected(t, strings.Replace(own, `"dana"`, `"suite"`, 1))
	out, err := exec.CommandContext(t.Context(), node, "dex.mjs", url).CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s %s", err, out, ended())
	}
	var seen struct {
		Tools, After, Saved, IDToken int
		Claims                       struct {
			Sub, Azp string
			Aud      []string
		}
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n")) // the client warns before
	if err := json.Unmarshal(lines[len(lines)-1], &seen); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	said := ended()
	if seen.Tools < 5 || seen.After != seen.Tools || seen.Saved != 2 || seen.IDToken != 401 ||
		!strings.Contains(fence("json"), seen.Claims.Sub) || seen.Claims.Azp != "laptop" ||
		!slices.Contains(seen.Claims.Aud, "caponier") ||
		!strings.Contains(said, "with claim c_hash it is an ID token") {
		t.Errorf("%s\n%s", out, said)
	}
}
