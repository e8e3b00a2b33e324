package pvelab

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	goyaml "go.yaml.in/yaml/v3"
)

// entry is what this test reads of an entry of the command grammar.
type entry struct {
	Tier     string
	Operands []any
	Options  map[string]any
	Required []string
	Divider  bool
	Paths    map[string]entry
}

// words are one word of each kind, which the demo's inventory knows.
var words = map[string]string{"vmid": "101", "snapname": "before", "storage": "local",
	"node": "pve2", "volid": "local:iso/debian-13.iso", "zname": "rpool", "zpool": "rpool",
	"columns": "health", "blockdev": "/dev/sda", "link": "vmbr0", "module": "kvm",
	"net": "default", "package": "bash", "pattern": "root", "place": "/", "process": "sshd",
	"program": "cat", "readpath": "/etc/hostname", "procfile": "/proc/uptime", "sedlines": "1p",
	"service": "pveproxy", "unit": "pveproxy", "count": "1", "chars": "a", "chars?": "b",
	"guestpath": "/root/x", "stagepath": "/root/stage", "statformat": "%s",
	"sysctlkey": "vm.swappiness", "text": "x", "chain": "filter", "ident": "x", "int": "0",
	"nap": "0", "pveservice": "pveproxy", "seconds": "1", "device": "/dev/sda"}

// asked are the words for entries that need a guest in another state, or words in another order.
var asked = map[string]string{
	"pct start": "pct start 104", "pct destroy": "pct destroy 104",
	"pct snapshot":    "pct snapshot 104 after",
	"pct delsnapshot": "pct delsnapshot 104 before",
	"pct rollback":    "pct rollback 104 before",
	"pct exec":        "pct exec 101 --keep-env 0 -- true",
	"pct push":        "pct push 101 -- /root/stage /root/x",
	"pct pull":        "pct pull 101 -- /etc/hostname /root/y",
	"qm snapshot":     "qm snapshot 200 after",
	"stat -c":         "stat -c %s -- /root/stage",
	"test -f":         "test -f /etc/hostname",

	"pvesh create /nodes/{node}/wakeonlan":  "pvesh create /nodes/pve2/wakeonlan",
	"pvesh delete /nodes/{node}/lxc/{vmid}": "pvesh delete /nodes/pve1/lxc/104",
}

// more are options that an entry cannot be without, or that let it do something.
var more = map[string]string{
	"iptables": "-L", "pct set": "--memory 512", "qm set": "--memory 512",
	"pvesh get /nodes/{node}/rrddata":                 "--timeframe hour",
	"pvesh get /nodes/{node}/lxc/{vmid}/feature":      "--feature clone",
	"pvesh get /nodes/{node}/qemu/{vmid}/feature":     "--feature clone",
	"pvesh create /nodes/{node}/lxc/{vmid}/snapshot":  "--snapname after",
	"pvesh create /nodes/{node}/qemu/{vmid}/snapshot": "--snapname after",
	"pvesh create /nodes/{node}/status":               "--command reboot",
}

// first is what has to be done before some entries can be asked.
var first = map[string]string{"qm stop": "qm start 200", "qm shutdown": "qm start 200",
	"qm reboot": "qm start 200"}

// exits are the exit codes of entries whose answer is not 0: real programs end so too.
var exits = map[string]int{"false": 1, "test -L": 1, "readlink": 1, "zcat": 1}

// grammar returns the commands and kinds of policies/core/grammar, read without the host's code.
func grammar(t *testing.T) (commands map[string]entry, kinds map[string]string) {
	t.Helper()
	commands, kinds = map[string]entry{}, map[string]string{}
	files, err := filepath.Glob("../../policies/core/grammar/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Commands map[string]map[string]entry
			Kinds    map[string]string
		}
		if err := goyaml.Unmarshal(data, &d); err != nil {
			t.Fatal(err)
		}
		maps.Copy(kinds, d.Kinds)
		for program, subs := range d.Commands {
			for sub, e := range subs {
				name := strings.TrimSpace(program + " " + sub)
				for path, p := range e.Paths {
					commands[name+" "+path] = p
				}
				if e.Paths == nil {
					commands[name] = e
				}
			}
		}
	}
	return commands, kinds
}

var placeholder = regexp.MustCompile(`\{(\w+)\}`)

// minimal returns the shortest words that an entry takes.
func minimal(t *testing.T, name string, e entry, upid string) []string {
	t.Helper()
	if text := asked[name]; text != "" {
		return strings.Fields(text)
	}
	guest := words["vmid"]
	if strings.HasPrefix(name, "qm ") || strings.Contains(name, "/qemu/") {
		guest = "200"
	}
	if strings.Contains(name, "/lxc/{vmid}/snapshot") || strings.Contains(name,
		"/lxc/{vmid}/status/start") {
		guest = "104" // stopped, on a storage with snapshots
	}
	word := func(kind string) string {
		w, ok := map[string]string{"upid": upid, "vmid": guest, "node": "pve1"}[kind]
		if !ok || kind == "node" && !strings.Contains(name, "{node}") {
			w, ok = words[kind]
		}
		if !ok {
			t.Fatalf("%s: the test has no word of kind %s", name, kind)
		}
		return w
	}
	argv := strings.Fields(placeholder.ReplaceAllStringFunc(name,
		func(p string) string { return word(strings.Trim(p, "{}")) }))
	for _, r := range e.Required {
		if argv = append(argv, r); e.Options[r] != nil && e.Options[r] != "flag" {
			argv = append(argv, "1")
		}
	}
	if e.Divider {
		argv = append(argv, "--")
	}
	for _, o := range e.Operands {
		kind, isKind := o.(string)
		if list, is := o.([]any); is {
			argv = append(argv, list[0].(string))
		} else if isKind && kind == "chars?" {
			argv = append(argv, words[kind])
		} else if isKind && !strings.ContainsAny(kind, "*?") {
			kind, _, _ = strings.Cut(kind, "|")
			argv = append(argv, word(kind))
		}
	}
	return append(argv, strings.Fields(more[name])...)
}

// newState makes a lab with snapshots and a staged file, and returns its directory and the id of
// a task.
func newState(t *testing.T) (o Options, upid string) {
	t.Helper()
	o = Options{State: t.TempDir()}
	for _, line := range []string{"pct snapshot 104 before", "qm snapshot 200 before",
		"cp /etc/hostname /root/stage"} {
		if code, _, errs := once(t, o, strings.Fields(line)); code != 0 {
			t.Fatalf("%s: %d %s", line, code, errs)
		}
	}
	_, out, _ := once(t, o, strings.Fields("pvesh get /nodes/pve1/tasks --output-format json"))
	if upid = regexp.MustCompile(`UPID:[^"]+`).FindString(out); upid == "" {
		t.Fatalf("no task: %s", out)
	}
	return o, upid
}

func once(t *testing.T, o Options, argv []string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code, err := RunOnce(t.Context(), o, "pve1", argv, nil, strings.NewReader("root\n"), &stdout,
		&stderr)
	if err != nil {
		t.Fatal(err)
	}
	return code, stdout.String(), stderr.String()
}

// The lab has an answer for every entry of the command grammar: what policy can allow can be tried.
func TestTheLabAnswersEveryEntryOfTheGrammar(t *testing.T) {
	commands, kinds := grammar(t)
	for kind, w := range words {
		if re, ok := kinds[strings.TrimSuffix(kind, "?")]; !ok ||
			!regexp.MustCompile(re).MatchString(w) {
			t.Errorf("%q is no word of kind %s", w, kind)
		}
	}
	shared, upid := newState(t)
	n := 0
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		e := commands[name]
		o, task := shared, upid
		if e.Tier != "green" {
			o, task = newState(t)
		}
		if before := first[name]; before != "" {
			if code, _, errs := once(t, o, strings.Fields(before)); code != 0 {
				t.Errorf("%s: %d %s", before, code, errs)
			}
		} else if strings.HasPrefix(name, "pvesh create /nodes/{node}/qemu/{vmid}/status/") &&
			!strings.HasSuffix(name, "/start") {
			once(t, o, []string{"qm", "start", "200"})
		}
		argv := minimal(t, name, e, task)
		if code, out, errs := once(t, o, argv); code != exits[name] {
			t.Errorf("%s: %q ends with %d: %.200s%.200s", name, argv, code, out, errs)
		}
		n++
	}
	if n < 450 {
		t.Errorf("the grammar has %d entries", n)
	}
	for _, table := range []map[string]string{asked, more, first} {
		for name := range table {
			if _, ok := commands[name]; !ok {
				t.Errorf("%s is no entry of the grammar", name)
			}
		}
	}
}

// Each text that is written down is what its words get, and ends where its last line does.
func TestEachTextIsReached(t *testing.T) {
	for program, texts := range sayings() {
		for i, s := range texts {
			if s.text != "" && !strings.HasSuffix(s.text, "\n") {
				t.Errorf("%s %q does not end in a newline", program, s.words)
			}
			hit := slices.IndexFunc(texts, func(o saying) bool { return o.answers(s.words) })
			if hit != i && texts[hit].text != s.text {
				t.Errorf("%s %q gets the text of %q", program, s.words, texts[hit].words)
			}
		}
	}
}
