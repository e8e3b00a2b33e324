package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (d *visit) clock(ctx context.Context) {
	began := time.Now()
	out, ok := d.read(ctx, "clock", reads[1])
	if !ok {
		return
	}
	took := time.Since(began)
	seconds, err := strconv.ParseInt(string(bytes.TrimSpace(out)), 10, 64)
	if err != nil {
		d.found("clock", Fail, "date +%s   # on "+d.opts.Name, "`date +%%s` answers %q", clip(out))
		return
	}
	// The node read its clock at some moment of the call, and cut off what is less than a second:
	// only what is beyond both is skew.
	early, late := began.Sub(time.Unix(seconds+1, 0)), time.Unix(seconds, 0).Sub(began.Add(took))
	skew := max(early, late, 0)
	note := fmt.Sprintf("the node's clock is %s %s", skew.Round(time.Second),
		map[bool]string{true: "behind this machine's",
			false: "ahead of this machine's"}[early > late])
	fix := "timedatectl set-ntp true   # on the machine whose clock is wrong: " + d.opts.Name +
		" or this one"
	switch {
	case skew > skewFail:
		d.found("clock", Fail, fix,
			"%s: the journal and the node's own logs cannot be laid side by side", note)
	case skew > skewWarn:
		d.found("clock", Warn, fix, "%s", note)
	default:
		d.found("clock", OK, "", "agrees with this machine's")
	}
}

// cluster looks at the quorum and at what the node calls itself: tools and pvesh name nodes as the
// cluster does.
func (d *visit) cluster(ctx context.Context) {
	if out, ok := d.read(ctx, "pvesh", reads[2]); ok {
		d.status(out, d.opts.Name)
	}
}

// status reads what pvesh says of the cluster. The words of a node are quoted, for they go to a
// terminal.
func (d *visit) status(out []byte, name string) {
	var rows []struct {
		Type, Name             string
		Local, Online, Quorate int
	}
	if err := json.Unmarshal(out, &rows); err != nil {
		d.found("pvesh", Fail, strings.Join(reads[2], " ")+"   # on "+name,
			"`%s` answers no JSON: %q", strings.Join(reads[2], " "), clip(out))
		return
	}
	d.found("pvesh", OK, "", "runs")
	own, quorate, online, offline := "", 1, 0, []string{}
	for _, r := range rows {
		switch {
		case r.Type == "cluster":
			d.rep.Cluster, quorate = r.Name, r.Quorate
		case r.Type == "node" && r.Online == 1:
			online++
		case r.Type == "node":
			offline = append(offline, strconv.Quote(r.Name))
		}
		if r.Type == "node" && r.Local == 1 {
			own = r.Name
		}
	}
	if own != name {
		d.found("name", Fail,
			fmt.Sprintf("name = %q   # instead of %q in [[remote.nodes]]", own, name),
			"the node calls itself %q: tools and guests name it so, and %q would be another node",
			own, name)
	} else {
		d.found("name", OK, "", "the node calls itself %s", own)
	}
	fix := "pvecm status   # on " + name + "; bring back " + strings.Join(offline, ", ")
	switch {
	case d.rep.Cluster == "" && quorate == 1:
		d.found("quorum", OK, "", "stands alone")
	case quorate != 1:
		d.found("quorum", Fail, fix,
			"cluster %q has no quorum (%d of %d nodes online): reading works, every change fails",
			d.rep.Cluster, online, online+len(offline))
	case len(offline) > 0:
		d.found("quorum", Warn, fix, "cluster %q has quorum, but does not hear %s", d.rep.Cluster,
			strings.Join(offline, ", "))
	default:
		d.found("quorum", OK, "", "cluster %q, %d nodes online", d.rep.Cluster, online)
	}
}

// locale looks at the character set in which programs read their arguments. In another than UTF-8
// the host sends no command that holds text beyond ASCII.
func (d *visit) locale(ctx context.Context) {
	e, err := d.r.Ask(ctx, d.opts.Name, textOf(reads[5]))
	charmap := strings.TrimSpace(string(clip(e.Stdout)))
	fix := "AcceptEnv LANG LC_*   # in /etc/ssh/sshd_config of " + d.opts.Name +
		", then systemctl reload ssh; or LANG=C.UTF-8 in /etc/default/locale there"
	switch {
	case err != nil:
		d.found("locale", Warn, "locale charmap   # on "+d.opts.Name, "%s", words(err))
	case e.Exit == 0 && charmap == "UTF-8":
		d.found("locale", OK, "", "UTF-8")
	case bytes.Contains(e.Stderr, []byte("caponier-gate")):
		d.found("locale", Warn, "install -o root -g root -m 0755 caponier-gate /usr/local/sbin/   "+
			"# on "+d.opts.Name+"; the file is packaging/node/caponier-gate of this version",
			"the caponier-gate there is an older one: commands with text beyond ASCII are refused")
	default:
		d.found("locale", Warn, fix, "programs read their arguments as %q (exit code %d), not "+
			"UTF-8: commands with text beyond ASCII are refused", charmap, e.Exit)
	}
}

// sftpNeeds are extensions that OpenSSH's server has, and what is worse without them.
var sftpNeeds = [][2]string{
	{"posix-rename@openssh.com", "a file that exists cannot be overwritten"},
	{"fsync@openssh.com", "an upload may be lost in a power cut right after it"},
	{"statvfs@openssh.com", "a full disk is noticed only when it is full"},
}

func (d *visit) files(ctx context.Context) {
	var names []string
	for _, x := range sftpNeeds {
		names = append(names, x[0])
	}
	missing, err := d.r.Lacks(ctx, d.opts.Name, names...)
	var lacks []string
	for _, x := range sftpNeeds {
		if slices.Contains(missing, x[0]) {
			lacks = append(lacks, x[0]+" ("+x[1]+")")
		}
	}
	fix := "Subsystem sftp /usr/lib/openssh/sftp-server   # in /etc/ssh/sshd_config of " +
		d.opts.Name + ", in place of another such line (behind caponier-gate: sftp=yes there), " +
		"if a tool of yours moves files"
	switch {
	case err != nil:
		d.found("sftp", Warn, fix, "files cannot be moved: %s", words(err))
	case len(lacks) > 0:
		d.found("sftp", Warn, fix, "the SFTP server lacks %s", strings.Join(lacks, ", "))
	default:
		d.found("sftp", OK, "", "answers, with all that is used of it")
	}
}
