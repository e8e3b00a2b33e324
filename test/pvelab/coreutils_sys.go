package pvelab

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// program finds a command of the node or of a container by its bare name; nil when there is none.
func (l *Lab) program(p *proc, name string) builtin {
	if f := l.everywhere[name]; f != nil {
		return f
	}
	if p.inCT() {
		return nil
	}
	if slices.Contains(p.nodeState().Without, name) {
		return nil
	}
	if f := l.onNode[name]; f != nil {
		return f
	}
	if pr := l.programs[name]; pr != nil {
		return talks(l.said[name],
			func(ctx context.Context, p *proc) int { return l.pve(ctx, p, pr.run) })
	}
	if name == "pvesh" {
		return func(ctx context.Context, p *proc) int { return l.pve(ctx, p, runPvesh) }
	}
	return nil
}

// pve is what all of the management programs share: the start-up time, and the cluster's daemon,
// which answers root only.
func (l *Lab) pve(ctx context.Context, p *proc, run func(context.Context, *proc) int) int {
	if err := sleep(ctx, time.Duration(l.latency.Load())); err != nil {
		return ended(ctx)
	}
	if p.uid != 0 {
		for i := range 3 {
			fmt.Fprintf(p.err, "ipcc_send_rec[%d] failed: Unknown error -1\n", i+1)
		}
		fmt.Fprintln(p.err, "Unable to load access control list: Unknown error -1")
		return 255
	}
	if !p.utf8() { // PVE::JSONSchema reads arguments with decode('locale', …)
		p.args = slices.Clone(p.args)
		for i, arg := range p.args {
			var read strings.Builder
			for _, c := range []byte(arg) {
				if c < 0x80 {
					read.WriteByte(c)
				} else {
					read.WriteRune('\uFFFD')
				}
			}
			p.args[i] = read.String()
		}
	}
	return run(ctx, p)
}

// utf8 reports whether the locale of a program has the character set UTF-8.
func (p *proc) utf8() bool {
	name := cmp.Or(p.getenv("LC_ALL"), p.getenv("LC_CTYPE"), p.getenv("LANG"))
	name = strings.ToLower(name)
	return strings.HasSuffix(name, ".utf-8") || strings.HasSuffix(name, ".utf8")
}

func cmdLocale(_ context.Context, p *proc) int {
	if len(p.args) != 2 || p.args[1] != "charmap" {
		return p.complain(1, "only charmap is known here")
	}
	fmt.Fprintln(p.out, map[bool]string{true: "UTF-8", false: "ANSI_X3.4-1968"}[p.utf8()])
	return 0
}

// smallPrograms are the tables of what runs anywhere and of what only a node has. Names of shell
// builtins are here because a program can also be started without a shell.
func smallPrograms() (everywhere, onNode map[string]builtin) {
	everywhere = map[string]builtin{
		"cat": cmdCat, "head": cmdHead, "tail": cmdTail, "wc": cmdWc, "sha256sum": cmdSHA256,
		"sha1sum": cmdSHA1, "md5sum": cmdMD5,
		"mktemp": cmdMktemp, "rm": cmdRm, "mkdir": cmdMkdir, "rmdir": cmdRmdir, "chmod": cmdChmod,
		"chown": cmdChown,
		"touch": cmdTouch, "mkfifo": cmdMkfifo, "mv": cmdMv, "cp": cmdCp, "ln": cmdLn,
		"readlink": cmdReadlink,
		"realpath": cmdReadlink, "stat": cmdStat, "ls": cmdLs, "tee": cmdTee, "grep": cmdGrep,
		"sed": cmdSed, "sort": cmdSort,
		"cut": cmdCut, "tr": cmdTr, "uniq": cmdUniq, "seq": cmdSeq, "yes": cmdYes, "dd": cmdDd,
		"hostname": cmdHostname, "uname": cmdUname, "uptime": cmdUptime, "df": cmdDf,
		"free": cmdFree, "id": cmdID,
		"whoami": func(_ context.Context, p *proc) int {
			fmt.Fprintln(p.out, userName(p.uid))
			return 0
		},
		"ps": cmdPs, "sleep": cmdSleep, "env": cmdEnv, "printenv": cmdEnv, "date": cmdDate,
		"timeout": cmdTimeout,
		"sh":      cmdShell, "bash": cmdShell, "ash": cmdShell, "kill": cmdKill, "which": cmdWhich,
		"sync": succeed,
		"find": cmdFind, "du": cmdDu, "basename": cmdBasename, "dirname": cmdBasename,
		"xargs": cmdXargs,
		"nproc": func(_ context.Context, p *proc) int { fmt.Fprintln(p.out, 2); return 0 },
		"egrep": cmdGrep, "fgrep": cmdGrep, "zcat": cmdZcat, "nl": cmdNl, "rev": cmdRev,
		"fold": cmdFold, "column": cmdColumn, "cmp": cmdCmp, "diff": cmdCmp, "file": cmdFile,
		"getfacl": cmdGetfacl,
	}
	for _, name := range native {
		everywhere[name] = func(ctx context.Context, p *proc) int {
			return p.child(p.args).shell(ctx, "raw", `"$@"`, append([]string{"sh"}, p.args...))
		}
	}
	everywhere["true"] = succeed
	everywhere["false"] = func(context.Context, *proc) int { return 1 }
	everywhere["pwd"] = func(_ context.Context, p *proc) int {
		fmt.Fprintln(p.out, p.dir)
		return 0
	}
	onNode = map[string]builtin{
		"systemctl": cmdSystemctl, "journalctl": cmdJournal, "flock": cmdFlock,
		"sensors": cmdSensors, "locale": cmdLocale, "lsblk": cmdLsblk, "ip": cmdIP,
		"top": cmdUptime, "reboot": cmdPower, "poweroff": cmdPower, "halt": cmdPower,
		"shutdown":   cmdPower,
		"pveversion": says("pve-manager/9.2.11/14a22df35955d97d (running kernel: " + kernel + ")"),
		"pveperf": says(
			"CPU BOGOMIPS:      10384.61\nREGEX/SECOND:      4210518\nFSYNCS/SECOND:     1893.12",
		),
		"ha-manager": says("quorum OK"),
		"lscpu": says(
			"Architecture:             x86_64\nCPU(s):                   2\nModel name:          " +
				"     AMD EPYC",
		),
		"lspci": says(
			"00:00.0 Host bridge: Intel Corporation 440FX\n00:03.0 Ethernet controller: Red Hat, " +
				"Inc. Virtio network device",
		),
		"lsusb": says("Bus 001 Device 001: ID 1d6b:0002 Linux Foundation 2.0 root hub"),
		"ss": says(
			"State  Recv-Q Send-Q Local Address:Port Peer Address:Port\nLISTEN 0      128        " +
				"  0.0.0.0:22        0.0.0.0:*\nLISTEN 0      4096               *:8006          " +
				"  *:*",
		),
		"findmnt": says(
			"TARGET SOURCE               FSTYPE OPTIONS\n/      /dev/mapper/pve-root ext4   " +
				"rw,relatime",
		),
		"pvs": says(
			"  PV         VG  Fmt  Attr PSize   PFree\n  /dev/sda3  pve lvm2 a--  251.97g 16.00g",
		),
		"lvs": says("  LV   VG  Attr       LSize\n  root pve -wi-ao---- 251.97g"),
		"vgs": says(
			"  VG  #PV #LV #SN Attr   VSize   VFree\n  pve   1   1   0 wz--n- 251.97g 16.00g",
		),
		"blkid": says(
			"/dev/mapper/pve-root: UUID=\"0f0f0f0f-0000-4000-8000-000000000001\" TYPE=\"ext4\"",
		),
		"smartctl": says("SMART overall-health self-assessment test result: PASSED"),
	}
	return everywhere, onNode
}

func succeed(context.Context, *proc) int { return 0 }

// host is the name of the node or of the container.
func (p *proc) host() (name string) {
	name = p.node
	if p.inCT() {
		_ = p.lab.db.view(func(s *State) {
			if g := s.guest(p.tree.vmid); g != nil {
				name = g.name()
			}
		})
	}
	return name
}

func (p *proc) nodeState() Node { return p.lab.nodeNow(p.node) }

func cmdHostname(_ context.Context, p *proc) int {
	switch {
	case len(p.args) > 1 && (p.args[1] == "-I" || p.args[1] == "-i"):
		fmt.Fprintln(p.out, p.nodeState().IP)
	case len(p.args) > 1 && p.args[1] == "-f":
		fmt.Fprintln(p.out, p.host()+".lab.test")
	default:
		fmt.Fprintln(p.out, p.host())
	}
	return 0
}

const kernel = "6.17.2-1-pve"

func cmdUname(_ context.Context, p *proc) int {
	o, _, err := p.options("asrnmvo", nil)
	if err != nil {
		return p.complain(1, "%v", err)
	}
	var out []string
	for _, f := range []struct{ k, v string }{{"s", "Linux"}, {"n", p.host()}, {"r", kernel},
		{"v", "#1 SMP PREEMPT_DYNAMIC PMX"}, {"m", "x86_64"}, {"o", "GNU/Linux"}} {
		if has(o, f.k+"a") || (len(o) == 0 && f.k == "s") {
			out = append(out, f.v)
		}
	}
	fmt.Fprintln(p.out, strings.Join(out, " "))
	return 0
}

func cmdUptime(_ context.Context, p *proc) int {
	up := time.Duration(now()-p.nodeState().Booted) * time.Second
	fmt.Fprintf(
		p.out,
		" %s up %d days, %2d:%02d,  0 users,  load average: 0.08, 0.11, 0.09\n",
		time.Now().
			UTC().
			Format("15:04:05"),
		int(up.Hours())/24,
		int(up.Hours())%24,
		int(up.Minutes())%60,
	)
	return 0
}

func human(n int64) string {
	f, units := float64(n), "BKMGT"
	i := 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	return strconv.FormatFloat(f, 'f', 0, 64) + units[i:i+1]
}

func cmdDf(_ context.Context, p *proc) int {
	n := p.nodeState()
	show := func(b int64) string { return strconv.FormatInt(b/1024, 10) }
	head := "1K-blocks"
	if strings.Contains(strings.Join(p.args[1:], " "), "h") {
		show, head = human, "Size"
	}
	fmt.Fprintf(p.out, "%-20s %10s %10s %10s %4s %s\n", "Filesystem", head, "Used", "Avail", "Use%",
		"Mounted on")
	fmt.Fprintf(p.out, "%-20s %10s %10s %10s %3d%% /\n", "/dev/mapper/pve-root", show(n.RootTotal),
		show(n.RootUsed), show(n.RootTotal-n.RootUsed), n.RootUsed*100/max(n.RootTotal, 1))
	return 0
}

func cmdFree(_ context.Context, p *proc) int {
	n := p.nodeState()
	show := func(b int64) string { return strconv.FormatInt(b/1024, 10) }
	if len(p.args) > 1 && p.args[1] == "-h" {
		show = human
	} else if len(p.args) > 1 && p.args[1] == "-m" {
		show = func(b int64) string { return strconv.FormatInt(b>>20, 10) }
	} else if len(p.args) > 1 && p.args[1] == "-b" {
		show = func(b int64) string { return strconv.FormatInt(b, 10) }
	}
	fmt.Fprintf(p.out, "%7s %11s %11s %11s %11s %11s %11s\n", "", "total", "used", "free", "shared",
		"buff/cache", "available")
	fmt.Fprintf(p.out, "%-7s %11s %11s %11s %11s %11s %11s\n", "Mem:", show(n.MemTotal),
		show(n.MemUsed), show(n.MemTotal-n.MemUsed), show(0), show(0), show(n.MemTotal-n.MemUsed))
	fmt.Fprintf(p.out, "%-7s %11s %11s %11s\n", "Swap:", show(0), show(0), show(0))
	return 0
}

func cmdID(_ context.Context, p *proc) int {
	if len(p.args) > 1 {
		name := map[string]string{"-un": "root", "-gn": "root"}[p.args[1]]
		number := map[bool]string{true: strconv.Itoa(p.uid)}
		fmt.Fprintln(p.out, name+number[p.args[1] == "-u" || p.args[1] == "-g"])
		return 0
	}
	fmt.Fprintf(p.out, "uid=%d(%s) gid=%d(%s) groups=%d(%s)\n", p.uid, userName(p.uid), p.uid,
		userName(p.uid), p.uid, userName(p.uid))
	return 0
}

func cmdDate(_ context.Context, p *proc) int {
	layout := "Mon Jan _2 15:04:05 UTC 2006"
	for _, a := range p.args[1:] {
		switch a {
		case "+%s":
			fmt.Fprintln(p.out, now()+p.nodeState().Skew)
			return 0
		case "-Iseconds", "-Is":
			layout = "2006-01-02T15:04:05+00:00"
		case "+%F":
			layout = "2006-01-02"
		}
	}
	fmt.Fprintln(p.out, time.Now().UTC().Format(layout))
	return 0
}

func cmdWhich(_ context.Context, p *proc) int {
	code := 0
	for _, a := range p.args[1:] {
		if _, err := p.lookup(a); err != nil {
			code = 1
			continue
		}
		fmt.Fprintln(p.out, path.Join("/usr/bin", a))
	}
	return code
}
