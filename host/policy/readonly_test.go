package policy_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/test/needs"
	"go.yaml.in/yaml/v3"
)

// entry is an entry of the command grammar for a program that reads its words as GNU programs do.
type entry struct {
	Group    string         `yaml:"group"`
	GNU      bool           `yaml:"gnu"`
	Source   string         `yaml:"source"`
	Operands []any          `yaml:"operands"`
	Options  map[string]any `yaml:"options"`
	Required []string       `yaml:"required"`
}

// entries returns the GNU entries of the grammar, by program and sub-command.
func entries(t *testing.T) map[string]map[string]entry {
	t.Helper()
	all := map[string]map[string]entry{}
	files, _ := filepath.Glob("../../policies/core/grammar/*.yaml")
	for _, f := range files {
		var file struct {
			Commands map[string]map[string]entry `yaml:"commands"`
		}
		data, err := os.ReadFile(f)
		if err == nil && !strings.HasSuffix(f, "pvesh.yaml") {
			err = yaml.Unmarshal(data, &file)
		}
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		for program, subs := range file.Commands {
			for sub, e := range subs {
				if e.GNU {
					if all[program] == nil {
						all[program] = map[string]entry{}
					}
					all[program][sub] = e
				}
			}
		}
	}
	return all
}

// sample is a word of each kind. What it names need not exist.
var sample = map[string]string{
	"place": "/etc", "procfile": "/proc/loadavg", "readpath": "/etc/hostname",
	"blockdev": "/dev/sda",
	"pattern":  "x", "signed": "5", "count": "5", "int": "1", "fields": "1", "sortkey": "1n",
	"delimiter": ":", "chars": "a-z", "sedlines": "1,5p", "dateformat": "+%s", "when": "today",
	"columns": "NAME", "sortcolumns": "pid", "pscolumns": "pid", "psflags": "aux", "pid": "1",
	"pids": "1", "user": "root", "module": "zfs", "sysctlkey": "vm.swappiness",
	"pcislot": "00:1f.0",
	"package": "bash", "program": "sh", "nap": "0", "process": "init", "unit": "ssh.service",
	"unitglob": "ssh*", "ident": "a", "jmatch": "_PID=1", "countall": "5", "boot": "0",
	"priority": "3",
	"net":      "192.168.1.1", "rtable": "main", "ssfilter": "sport = :22", "chain": "INPUT",
	"link":      "lo",
	"smarttype": "sat", "zname": "rpool/data", "lvmname": "pve", "zpool": "rpool", "size": "1K",
	"seconds": "1",
}

// The columns that programs have differ.
var columnsOf = map[string]string{
	"df": "source", "journalctl": "MESSAGE", "systemctl": "service", "dmesg": "err",
	"findmnt": "SOURCE",
}

// effects are the things that a program of the grammar does and that its entry names, as patterns
// of system calls.
var effects = map[string]string{
	"blkid": `"/run/blkid(/blkid.*)?"`,
	"apt": `"(/var/(cache/apt|lib/apt)/.*|/tmp/apt.*|/tmp/fileutl.*|/var/lib/` +
		`dpkg/lock.*)"|dpkg|O_TMPFILE`,
	"apt-cache": `"(/var/(cache/apt|lib/apt)/.*|/tmp/apt.*|/tmp/fileutl.*)"|dpkg|` +
		`O_TMPFILE`,
	"egrep":               `execve\("[^"]*/grep"`,
	"fgrep":               `execve\("[^"]*/grep"`,
	"zcat":                `execve\("[^"]*/gzip"`,
	"dpkg":                `execve\("[^"]*/dpkg-query"`,
	"hostname":            `connect\(.*(AF_UNIX.*nscd|AF_INET6?, sin6?_port=htons\(53\))`,
	"ss":                  `"/proc/net/|connect\(.*AF_UNIX.*nscd`,
	"pvs":                 `"/run/lock/lvm|"/run/lvm`,
	"vgs":                 `"/run/lock/lvm|"/run/lvm`,
	"lvs":                 `"/run/lock/lvm|"/run/lvm`,
	"systemctl":           `connect\(.*sun_path="/run/(systemd|dbus)`,
	"journalctl":          `connect\(.*sun_path="/run/(systemd|dbus)`,
	"timedatectl":         `connect\(.*sun_path="/(var/)?run/(systemd|dbus)`,
	"hostnamectl":         `connect\(.*sun_path="/(var/)?run/(systemd|dbus)`,
	"localectl":           `connect\(.*sun_path="/(var/)?run/(systemd|dbus)`,
	"loginctl":            `connect\(.*sun_path="/(var/)?run/(systemd|dbus)`,
	"networkctl":          `connect\(.*sun_path="/(var/)?run/(systemd|dbus)`,
	"resolvectl":          `connect\(.*sun_path="/(var/)?run/(systemd|dbus)`,
	"systemd-analyze":     `connect\(.*sun_path="/(var/)?run/(systemd|dbus)`,
	"systemd-cgls":        `connect\(.*sun_path="/(var/)?run/(systemd|dbus)`,
	"systemd-detect-virt": `connect\(.*sun_path="/(var/)?run/(systemd|dbus)`,
	"coredumpctl":         `connect\(.*sun_path="/(var/)?run/(systemd|dbus)`,
	"dmsetup":             `"/dev/mapper/control"|^mkdir\("/dev(/mapper)?"`,
	"sort":                `"/tmp/sort`,
	"top":                 `^mkdir\("[^"]*/\.config(/procps)?"`,
	"crontab":             `"/var/spool/cron`,
	"which":               `execve\("[^"]*/which`,
}

const traced = "execve,execveat,open,openat,openat2,creat,unlink,unlinkat,rename,renameat," +
	"renameat2," +
	"mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat,chmod,fchmod,fchmodat,chown,fchown," +
	"fchownat," +
	"truncate,ftruncate,mknod,mknodat,mount,umount2,connect,kill,tkill,reboot,sethostname," +
	"setdomainname,settimeofday,clock_settime,adjtimex,init_module,finit_module,delete_module," +
	"swapon,swapoff,syslog,setxattr,lsetxattr,fsetxattr,ptrace,bpf,unshare,setns"

var (
	writes   = regexp.MustCompile(`O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND`)
	devices  = regexp.MustCompile(`"/dev/(null|tty|zero|full)"|"/proc/self/(fd|task/[0-9]+/attr)/`)
	harmless = regexp.MustCompile(`^(open|openat|openat2)\(|^syslog\((2|3|9|10)[ ,]` +
		`|connect\(.*sun_path="/(var/)?run/nscd/socket"`)
)

// does returns the system calls of a line of words that change something, start another program, or
// connect to anything.
func does(t *testing.T, argv []string) (found []string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	ctx, done := context.WithTimeout(t.Context(), 10*time.Second)
	defer done()
	cmd := exec.CommandContext(ctx, "strace",
		append([]string{"-f", "-qq", "-s", "300", "-o", log, "-e", "trace=" + traced}, argv...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "LC_ALL=C.UTF-8"}
	cmd.Stdin, cmd.WaitDelay = strings.NewReader("a x\nb y\n"), time.Second
	out, _ := cmd.CombinedOutput()
	data, err := os.ReadFile(log)
	if err != nil || len(data) == 0 {
		t.Fatalf("strace %q: %v\n%s", argv, err, out)
	}
	if ctx.Err() != nil {
		found = append(found, "it does not end")
	}
	allowed := regexp.MustCompile(effects[argv[0]])
	for i, line := range bytes.Split(data, []byte("\n")) {
		_, call, ok := strings.Cut(string(line), " ")
		call = strings.TrimLeft(call, " ")
		switch {
		case !ok || i == 0 || strings.HasPrefix(call, "+++") || strings.HasPrefix(call, "---"),
			strings.HasPrefix(call, "<..."),
			effects[argv[0]] != "" && allowed.MatchString(call),
			devices.MatchString(call),
			harmless.MatchString(call) && !writes.MatchString(call),
			// a program that the shell looks for along PATH
			strings.HasPrefix(call, "execve(") && strings.Contains(call, "ENOENT"):
			continue
		}
		found = append(found, call)
	}
	return found
}

// TestEveryOptionOnlyReads runs each option of each installed program of the grammar under strace,
// with -short each third.
// It logs the programs that are not installed.
func TestEveryOptionOnlyReads(t *testing.T) {
	needs.Program(t, "strace")
	needs.Minutes(t, "1,400 programs run under strace")
	var missing []string
	lines, runs := 0, 0
	all := entries(t)
	for _, program := range slices.Sorted(maps.Keys(all)) {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
			continue
		}
		for _, sub := range slices.Sorted(maps.Keys(all[program])) {
			for _, argv := range linesOf(program, sub, all[program][sub]) {
				if lines++; lines%needs.Share(3) != 0 {
					continue
				}
				runs++
				if found := does(t, argv); len(found) > 0 {
					t.Errorf("%q (%s):\n\t%s", argv, all[program][sub].Source,
						strings.Join(found[:min(4, len(found))], "\n\t"))
				}
			}
		}
	}
	t.Logf("%d lines of %d programs ran; not installed, and not checked: %s",
		runs, len(all)-len(missing), strings.Join(missing, " "))
}

// TestTracingSeesWhatIsNotReading holds the other test to its word.
func TestTracingSeesWhatIsNotReading(t *testing.T) {
	needs.Program(t, "strace")
	for want, argv := range map[string][]string{
		`"out", O_WRONLY`: {"sort", "-o", "out", "/etc/hostname"},
		"execve(":         {"sort", "--compress-program=cat", "-S", "1b", "/etc/services"},
		"unlink":          {"rm", "-f", "x"},
		"does not end":    {"tail", "-f", "/etc/hostname"},
	} {
		if found := does(t, argv); !strings.Contains(strings.Join(found, "\n"), want) {
			t.Errorf("%q: %q is not among %q", argv, want, found)
		}
	}
}

// linesOf returns one line for the entry alone and one for each of its options.
func linesOf(program, sub string, e entry) [][]string {
	value := func(kind any) string {
		if list, is := kind.([]any); is {
			return fmt.Sprint(list[0])
		}
		name, _, _ := strings.Cut(strings.TrimRight(fmt.Sprint(kind), "*?"), "|")
		if name == "columns" && columnsOf[program] != "" {
			return columnsOf[program]
		}
		return sample[name]
	}
	words := append([]string{program}, strings.Fields(sub)...)
	for _, o := range e.Required {
		words = append(words, o)
		if e.Options[o] != "flag" {
			words = append(words, value(e.Options[o]))
		}
	}
	var operands []string
	for _, kind := range e.Operands {
		if s, is := kind.(string); !is || !strings.HasSuffix(s, "?") {
			operands = append(operands, value(kind))
		}
	}
	lines := [][]string{slices.Concat(words, operands)}
	for _, o := range slices.Sorted(maps.Keys(e.Options)) {
		kind := e.Options[o]
		var more []string
		switch {
		case slices.Contains(e.Required, o):
			continue
		case o == "-NUM":
			more = []string{"-5"}
		case strings.HasSuffix(o, "="):
			more = []string{o + value(kind)}
		case kind == "flag" || kind == "flag*":
			more = []string{o}
		default:
			more = []string{o, value(kind)}
		}
		lines = append(lines, slices.Concat(words, more, operands))
	}
	return lines
}
