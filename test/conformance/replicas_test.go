//go:build conformance

package conformance

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/test/needs/balancer"
	"github.com/caponier-mcp/caponier/test/needs/pgtest"
)

// The suite passes whole against two hosts behind a balancer, each request of it on either.
func TestTheSuitePassesThroughABalancer(t *testing.T) {
	server, dir := pgtest.Start(t), t.TempDir()
	url := server.URL(server.Database())
	var hosts []string
	for i := range 2 {
		state := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(state, 0o700); err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, fmt.Sprintf("127.0.0.1:%d", free(t)))
		cmd := exec.Command(host, append(append([]string{}, hostArgs...), "--http", hosts[i])...)
		cmd.Env = append(os.Environ(), "CAPONIER_STORE_URL="+url,
			"CAPONIER_STORE_DIR="+filepath.Join(state, "store"),
			"CAPONIER_AUDIT_DIR="+filepath.Join(state, "journal"))
		var log bytes.Buffer
		cmd.Stderr = &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Signal(os.Interrupt)
			if err := cmd.Wait(); err != nil {
				t.Errorf("host %d ended with %v\n%s", i, err, log.String())
			}
		})
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			res, err := http.Get("http://" + hosts[i] + "/ready")
			if err == nil {
				res.Body.Close()
				if res.StatusCode == http.StatusOK {
					break
				}
			}
			if time.Now().After(end) {
				t.Fatalf("host %d is not ready: %v", i, err)
			}
		}
	}
	front := balancer.Start(t, "../../docs/scale.md", true, hosts...)
	began := time.Now()
	cmd := exec.Command("./run.sh", front.URL)
	cmd.Env = append(os.Environ(), "RESULTS=balanced")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("it took %s", time.Since(began).Round(time.Second))
	for i := range 2 {
		files, err := filepath.Glob(filepath.Join(dir, fmt.Sprint(i), "journal/*.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			n += strings.Count(string(data), `"type":"intent"`)
		}
		if t.Logf("host %d has %d intents", i, n); n < 10 {
			t.Errorf("host %d was hardly used", i)
		}
	}
}
