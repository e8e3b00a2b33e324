// Package setup keeps the files of an installation: a configuration, a site that allows reads only,
// a key for the nodes. It overwrites nothing, and removes nothing that it did not write.
package setup

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Plan is an installation to be written. Paths are absolute.
type Plan struct {
	Dir         string // of config.toml, the site and the key
	State       string // of journal, store, cache and everything else that the host writes
	Shipped     string // the archive or checkout with plugins, lock, site and gate
	Account     string // the user that the host runs as; "": the one that runs this
	Cluster     string // of the nodes; "": none
	AcceptRisks bool
	Nodes       []Node
}

// items are what Write makes in Dir. The last one is there only when all are.
var items = []string{"secrets", "site", written, "config.toml"}

// Config returns the file whose presence means that Dir is set up.
func (p Plan) Config() string { return filepath.Join(p.Dir, "config.toml") }

// Find returns the archive or the checkout that this program lies in: the folder above the one of
// the executable.
func Find() (string, error) {
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(filepath.Dir(exe))
	for _, f := range []string{"plugins.lock", "build/plugins", "policies/site/data.yaml",
		"packaging/node/caponier-gate", "packaging/node/caponier.sudoers"} {
		if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
			return "", fmt.Errorf("this program lies outside of its archive, whose files it "+
				"needs: %w", err)
		}
	}
	return dir, nil
}

// Write writes the installation and returns the public key of its new key pair, as a line of
// authorized_keys without a comment. Everything is complete before it gets its name; when something
// of that name exists already, or anything fails, nothing is left.
func (p Plan) Write() (public string, err error) {
	for _, name := range items {
		if _, err := os.Lstat(filepath.Join(p.Dir, name)); err == nil {
			return "", fmt.Errorf("%s exists: nothing is overwritten, and nothing was written",
				filepath.Join(p.Dir, name))
		}
	}
	site, err := p.site()
	if err != nil {
		return "", err
	}
	owner, group, err := p.ids()
	if err != nil {
		return "", err
	}
	made, err := mkdirs(p.Dir, 0o750)
	record := record{State: p.State, Made: made, Files: map[string]string{}}
	defer func() {
		if err != nil {
			for _, d := range made {
				_ = os.Remove(d) // if it is empty
			}
		}
	}()
	if err != nil {
		return "", err
	}
	stage, err := os.MkdirTemp(p.Dir, ".caponier-init-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(stage)
	private, public, err := newKey()
	if err != nil {
		return "", err
	}
	for _, f := range []struct {
		name, data string
		perm       os.FileMode
		owner      int
	}{
		{"secrets/id_ed25519", private, 0o600, owner},
		{"secrets/id_ed25519.pub", public + " caponier\n", 0o640, -1},
		{"site/data.yaml", site, 0o640, -1},
		{"config.toml", p.text(), 0o640, -1},
	} {
		to := filepath.Join(stage, f.name)
		if err := writeFile(to, f.data, f.perm, f.owner, group); err != nil {
			return "", err
		}
		record.Files[f.name] = digest([]byte(f.data))
	}
	if err = p.last(record, stage, owner, group); err != nil {
		return "", err
	}
	return public, p.publish(stage)
}

// last makes the directory of the state, and the record of everything that was made.
func (p Plan) last(r record, stage string, owner, group int) error {
	_, none := os.Lstat(filepath.Join(p.State, "cache"))
	r.Cache = errors.Is(none, os.ErrNotExist)
	below, err := mkdirs(p.State, 0o700)
	if err == nil && owner >= 0 {
		err = errors.Join(os.Chown(p.State, owner, group), os.Chown(p.Dir, -1, group))
	}
	r.Made = append(below, r.Made...)
	if err == nil {
		err = writeFile(filepath.Join(stage, written), r.text(), 0o640, -1, group)
	}
	return err
}

// publish gives the finished items their names, config.toml last.
func (p Plan) publish(stage string) (err error) {
	for i, name := range items {
		to := filepath.Join(p.Dir, name)
		if strings.Contains(name, ".") { // a file
			err = os.Link(filepath.Join(stage, name), to) // unlike Rename it replaces nothing
		} else {
			err = os.Rename(filepath.Join(stage, name), to)
		}
		if err != nil {
			for _, done := range items[:i] {
				err = errors.Join(err, os.RemoveAll(filepath.Join(p.Dir, done)))
			}
			return err
		}
	}
	return nil
}

// ids returns the numbers of the account and its group, or -1 to leave files as they are made.
func (p Plan) ids() (owner, group int, err error) {
	if p.Account == "" {
		return -1, -1, nil
	}
	u, err := user.Lookup(p.Account)
	if err != nil {
		return 0, 0, err
	}
	owner, err = strconv.Atoi(u.Uid)
	if err == nil {
		group, err = strconv.Atoi(u.Gid)
	}
	return owner, group, err
}

// site returns data.yaml of the shipped site, in which the one principal may only read.
func (p Plan) site() (string, error) {
	data, err := os.ReadFile(filepath.Join(p.Shipped, "policies/site/data.yaml"))
	if err != nil {
		return "", err
	}
	before, rest, ok := strings.Cut(string(data), "\nprincipals:\n")
	_, after, ended := strings.Cut(rest, "\n\n")
	if !ok || !ended {
		return "", fmt.Errorf("%s/policies/site/data.yaml has no principals to replace", p.Shipped)
	}
	return before + "\nprincipals:\n  local: {auth: [config, token], roles: [viewer]}\n\n" + after,
		nil
}

// text returns config.toml.
func (p Plan) text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	under := func(name string) string { return strconv.Quote(filepath.Join(p.State, name)) }
	line("# Written by caponier init. %s lists every key.", filepath.Join(p.Shipped, "config.toml"))
	line("\n# Caponier lets an agent act as root on the nodes below, within what policy " +
		"allows. Read")
	line("# docs/threats.md, then write true.\naccept_risks = %t", p.AcceptRisks)
	line("\n# Reads only, whatever the site says. Write false when the site says what you want.")
	line("read_only = true\n\n[cli]\nprincipal = \"local\"\n\n[policy]\nsite = \"site\"")
	line("\n[plugin]\nlock = %q", filepath.Join(p.Shipped, "plugins.lock"))
	line("dir = %q", filepath.Join(p.Shipped, "build/plugins"))
	line("\n[sandbox]\ncache_dir = %s\n\n[audit]\ndir = %s", under("cache"), under("journal"))
	line("\n[export]\ndir = %s", under("export"))
	line("\n[store]\ndir = %s\n\n[blob]\ndir = %s", under("store"), under("blobs"))
	line("\n[identity]\ntokens = %s\n\n[[identity.principals]]\nid = \"local\"",
		under("tokens.json"))
	line("\n[remote]\nworkspace = %s", under("workspace"))
	for i, n := range p.Nodes {
		line("\n[[remote.nodes]]\nname = %q", n.Name)
		if p.Cluster != "" {
			line("cluster = %q", p.Cluster)
		}
		line("host = %q\nport = %d\nuser = %q", n.Host, n.Port, n.User)
		line("identity_file = \"secrets/id_ed25519\"\nhost_key = %q", n.HostKey)
		if i == 0 {
			line("default = true")
		}
	}
	return b.String()
}

// newKey returns a new key pair, as OpenSSH writes them.
func newKey() (private, public string, err error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", "", err
	}
	block, err := ssh.MarshalPrivateKey(key, "caponier")
	if err != nil {
		return "", "", err
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return "", "", err
	}
	return string(pem.EncodeToMemory(block)),
		strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))), nil
}

// mkdirs makes a directory and those above it, and returns the new ones, the deepest first.
func mkdirs(dir string, perm os.FileMode) (made []string, err error) {
	var missing []string
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil {
			break
		} else if !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		missing = append(missing, d)
	}
	return missing, os.MkdirAll(dir, perm)
}

// writeFile writes a file that is not there, and the directory that it is in. Without a group, both
// are of this user alone.
func writeFile(file, data string, perm os.FileMode, owner, group int) error {
	dirPerm := os.FileMode(0o750)
	if group < 0 {
		perm, dirPerm = perm&0o600, 0o700
	}
	if err := os.MkdirAll(filepath.Dir(file), dirPerm); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = f.WriteString(data)
	err = errors.Join(err, f.Chmod(perm), f.Sync(), f.Close())
	if err == nil && group >= 0 {
		err = errors.Join(os.Chown(file, owner, group), os.Chown(filepath.Dir(file), -1, group))
	}
	return err
}

// stage unpacks into a directory that is gone at the end.
const stage = `d=$(mktemp -d) && trap "rm -r $d" EXIT && cd "$d" && tar -x`

// Line returns the command that lets Caponier's key in: one line for a shell on this machine, by
// somebody who can log in as root on the node. It keeps what the node has already, and changes
// nothing the second time.
func (p Plan) Line(n Node, way Way, public string) string {
	const gate = "/usr/local/sbin/caponier-gate"
	files, home, chown := "caponier-gate", "/root", ""
	script := stage + ` && { test -e ` + gate +
		` || install -o root -g root -m 0755 caponier-gate ` + gate + `; } && `
	keys := "authorized_keys2" // which the cluster does not share
	if way == Sudo {
		files, home, keys = "caponier-gate caponier.sudoers", "/home/caponier", "authorized_keys"
		chown = " && chown -R caponier: " + home + "/.ssh"
		const list = "/etc/sudoers.d/caponier"
		script += `visudo -qcf caponier.sudoers && { test -e ` + list +
			` || install -o root -g root -m 0440 caponier.sudoers ` + list + `; } && ` +
			`{ id caponier >/dev/null 2>&1 || useradd --system --create-home --home-dir ` + home +
			` --shell /bin/bash caponier; } && `
	}
	file := home + "/.ssh/" + keys
	script += fmt.Sprintf(`mkdir -p -m 0700 %s/.ssh && { grep -qsF "%s" %s || `+
		`(umask 077 && echo "command=\"%s\",restrict %s caponier" >> %s); }%s`,
		home, public, file, gate, public, file, chown)
	return fmt.Sprintf("tar -cC %s %s | ssh -p %d root@%s '%s'",
		quote(filepath.Join(p.Shipped, "packaging/node")), files, n.Port, n.Host, script)
}

// quote writes a word for a POSIX shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// Unline returns the command that takes back what Line did, but for an account: the key, and the
// gate and the list of sudo if they are as they were delivered and no other key names them.
func (p Plan) Unline(n Node, public string) string {
	const script = stage + ` && for f in /root/.ssh/authorized_keys2 ` +
		`/home/caponier/.ssh/authorized_keys; do test ! -e $f || { test ! -L $f && ` +
		`sed -i "\,%s,d" $f; } || { echo "$f: remove the key by hand" >&2; exit 1; }; done; ` +
		`g=/usr/local/sbin/caponier-gate; l=/etc/sudoers.d/caponier; ` +
		`grep -qsF $g /root/.ssh/authorized_keys /root/.ssh/authorized_keys2 ` +
		`/home/caponier/.ssh/authorized_keys || { ! cmp -s caponier-gate $g || rm $g; ` +
		`! cmp -s caponier.sudoers $l || rm $l; }`
	return fmt.Sprintf("tar -cC %s caponier-gate caponier.sudoers | ssh -p %d root@%s '%s'",
		quote(filepath.Join(p.Shipped, "packaging/node")), n.Port, n.Host,
		fmt.Sprintf(script, public))
}
