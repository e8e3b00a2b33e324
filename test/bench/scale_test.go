package bench

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/cluster"
	policy "github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/terms"
)

// largeSite writes the site of the lab with 5,000 principals more, 200 roles, and 20,000 guests
// that are protected or relaxed by their numbers.
func largeSite(t testing.TB) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "site")
	if err := os.CopyFS(dir, os.DirFS("../../examples/lab/site")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "data.yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var people, roles, protected, relaxed strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&people, "  agent-%d: {auth: [token], roles: [team-%d]}\n", i, i%200)
	}
	for i := range 200 {
		fmt.Fprintf(&roles, "  team-%d: {tools: [execute_ssh, get_guest_status], "+
			"imports: [ssh_exec], ceiling: green, nodes: [pve1], commands: [read]}\n", i)
	}
	for i := range 10_000 {
		fmt.Fprintf(&protected, "    \"%d\": {reason: of customer %d}\n", 10_000+i, i%100)
		fmt.Fprintf(&relaxed, ", \"%d\"", 50_000+i)
	}
	text := strings.NewReplacer("\nprincipals:\n", "\nprincipals:\n"+people.String(),
		"\nroles:\n", "\nroles:\n"+roles.String(), "  vmids:\n    \"103\"",
		"  vmids:\n"+protected.String()+"    \"103\"",
		`"104", "105"]`, `"104", "105"`+relaxed.String()+"]").Replace(string(data))
	if len(text) < len(data)+700_000 {
		t.Fatalf("the site grew by %d bytes alone", len(text)-len(data))
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// BenchmarkSites decides on a small and on a large site, in turns. A question that was asked before
// is answered from memory; "anew" asks of another guest each time. It reports the p50 of one
// decision, what loading takes, and the heap that the site keeps alive.
func BenchmarkSites(b *testing.B) {
	dirs := map[string]string{"small": "../../examples/lab/site", "large": largeSite(b)}
	engines, loaded := map[string]terms.Decider{}, map[string]float64{}
	for _, name := range []string{"small", "large"} {
		before, began := heap(), time.Now()
		e, err := policy.New(b.Context(), policy.Options{Site: dirs[name]})
		if err != nil {
			b.Fatal(err)
		}
		loaded[name+"-load-s"] = time.Since(began).Seconds()
		loaded[name+"-MiB"] = float64(int64(heap())-int64(before)) / (1 << 20)
		engines[name] = e
	}
	const n = 400
	took := map[string][]time.Duration{}
	for b.Loop() {
		for i := range n {
			for name, e := range engines {
				for _, of := range []string{"again", "anew"} {
					q := question(0)
					if of == "anew" {
						n := len(took[name+"-anew"])
						q = question(2 * n)
						q.Call.Targets.VMIDs = []string{fmt.Sprint(70_000 + n)}
					}
					q.ID = fmt.Sprint("D", i)
					began := time.Now()
					d, err := e.Decide(b.Context(), q)
					took[name+"-"+of] = append(took[name+"-"+of], time.Since(began))
					if err != nil || !d.Allow {
						b.Fatalf("%s %s: %+v %v", name, of, d, err)
					}
				}
			}
		}
	}
	for name, of := range loaded {
		b.ReportMetric(of, name)
	}
	for name, ds := range took {
		slices.Sort(ds)
		b.ReportMetric(float64(ds[len(ds)/2].Microseconds()), name+"-p50-us")
	}
}

// BenchmarkProcessors reports how many calls a second one host takes from 1, 4 and 16 callers with
// one and with two processors, in turns. The node and the callers are on the same machine.
func BenchmarkProcessors(b *testing.B) {
	p, hosts := newPlace(b), map[string]*subject{}
	for _, n := range []string{"1", "2"} {
		b.Setenv("GOMAXPROCS", n)
		hosts[n] = p.start(b, "caponier", "stdio")
		hosts[n].block(b, "yellow", 100)
	}
	took := map[string][]float64{}
	for b.Loop() {
		for n, s := range hosts {
			for _, callers := range []int{1, 4, 16} {
				name := fmt.Sprintf("GOMAXPROCS-%s-callers-%d/s", n, callers)
				took[name] = append(took[name], s.callers(b, callers))
			}
		}
	}
	for name, rates := range took {
		slices.Sort(rates)
		b.ReportMetric(rates[len(rates)/2], name)
	}
}

// BenchmarkNodes reports what a green call takes with an inventory of some nodes, and what it costs
// the host in processor time. Only one of the nodes is there.
func BenchmarkNodes(b *testing.B) {
	for _, n := range []int{1, 50, 200, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := newPlace(b)
			file := filepath.Join(p.dir, "config.toml")
			text, err := os.ReadFile(file)
			must(b, err)
			for i := 2; i <= n; i++ {
				key := sha256.Sum256(fmt.Append(nil, i)) // each its own, or they would be aliases
				text = fmt.Appendf(text, "[[remote.nodes]]\nname = \"pve%d\"\ncluster = \"c%d\"\n"+
					"host = \"192.0.%d.%d\"\nuser = \"root\"\nidentity_file = %q\nhost_key = "+
					"\"SHA256:%s\"\n", i, i/10, i/250, i%250+1, p.sshd.ClientFile,
					base64.RawStdEncoding.EncodeToString(key[:]))
			}
			must(b, os.WriteFile(file, text, 0o600))
			s := p.start(b, "caponier", "stdio")
			s.block(b, "green", 20)
			var took []float64
			before := s.cpu(b)
			for b.Loop() {
				took = append(took, s.block(b, "green", 40))
			}
			b.ReportMetric((s.cpu(b)-before)/40/float64(len(took)), "cpu-ms")
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2], "p50-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkInventory reads what one cluster says of 10,000 guests, the most that its answer may
// hold, and looks one up. A site of 100,000 guests has ten such clusters: it keeps ten lists.
func BenchmarkInventory(b *testing.B) {
	rows := []map[string]any{{"id": "node/pve1", "type": "node", "node": "pve1",
		"status": "online"}}
	for i := range 10_000 {
		rows = append(rows, map[string]any{"id": fmt.Sprintf("lxc/%d", 10_000+i), "type": "lxc",
			"vmid": 10_000 + i, "node": "pve1", "status": "running", "name": fmt.Sprint("web-", i),
			"tags": "prod;web", "pool": "customers", "template": 0, "cpu": 0.0123, "maxcpu": 2,
			"mem": 120586240, "maxmem": 536870912, "disk": 934281216, "maxdisk": 8589934592,
			"diskread": 89432064, "diskwrite": 45219840, "netin": 128374, "netout": 91823,
			"uptime": 1293811})
	}
	data, err := json.Marshal(rows)
	if err != nil {
		b.Fatal(err)
	}
	rows = nil
	lists, before := []cluster.List{}, heap()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		l, err := cluster.Read(data)
		if err != nil || len(l.Guests) != 10_000 {
			b.Fatal(len(l.Guests), err)
		}
		if _, is := l.Guest("15000"); !is {
			b.Fatal("no guest 15000")
		}
		if len(lists) < 10 {
			lists = append(lists, l)
		}
	}
	b.ReportMetric(float64(int64(heap())-int64(before))/(1<<20)/float64(len(lists)), "MiB")
	runtime.KeepAlive(lists)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
