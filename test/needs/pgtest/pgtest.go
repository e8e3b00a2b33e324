// Package pgtest starts PostgreSQL and pgbouncer for tests.
package pgtest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caponier-mcp/caponier/test/needs"
)

// Server is a cluster of PostgreSQL that ends with its test.
type Server struct {
	t    testing.TB
	bin  string
	Dir  string // of its data, and of its socket
	Port string
	cmd  *exec.Cmd
}

var databases atomic.Int64

// Start starts a cluster on a port of the loopback and on a socket.
func Start(t testing.TB) *Server {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		needs.Skip(t, "PostgreSQL is not installed")
	}
	slices.Sort(found)
	dir, err := os.MkdirTemp("/tmp", "pg") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &Server{t: t, bin: filepath.Dir(found[len(found)-1]), Dir: dir, Port: Port(t)}
	s.own(dir)
	s.must(s.command("initdb", "-D", filepath.Join(dir, "data"), "-U", "postgres", "-A", "trust",
		"-E", "UTF8", "--no-sync", "--locale=C"))
	s.Run()
	t.Cleanup(s.Kill)
	return s
}

// Port returns a free port of the loopback.
func Port(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// account is who runs the servers: PostgreSQL does not run as root.
func (s *Server) account() *syscall.Credential {
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		s.t.Fatal(err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		s.t.Fatal(err)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		s.t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func (s *Server) own(path string) {
	if c := s.account(); c != nil {
		if err := os.Chown(path, int(c.Uid), int(c.Gid)); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *Server) command(program string, args ...string) *exec.Cmd {
	if !filepath.IsAbs(program) {
		program = filepath.Join(s.bin, program)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = s.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.account(), Pdeathsig: syscall.SIGQUIT}
	return cmd
}

func (s *Server) must(cmd *exec.Cmd) {
	s.t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// Run starts the server, also again after Kill. For tests it waits for no disk: they end processes,
// never the machine.
func (s *Server) Run() {
	s.t.Helper()
	fsync := "fsync=off"
	if _, measured := s.t.(*testing.B); measured {
		fsync = "fsync=on"
	}
	s.cmd = s.command("postgres", "-D", filepath.Join(s.Dir, "data"), "-k", s.Dir, "-p", s.Port,
		"-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=16MB",
		"-c", "max_connections=150", "-c", "logging_collector=off", "-c", fsync)
	s.start(s.cmd, "postgres", s.URL("postgres"))
}

// start starts a program that serves a URL, and waits until it does. Its log is a file: the
// processes that it starts would keep a pipe open.
func (s *Server) start(cmd *exec.Cmd, what, url string) {
	s.t.Helper()
	path := filepath.Join(s.Dir, what+".log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if err = try(url, "SELECT 1"); err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	said, _ := os.ReadFile(path)
	s.t.Fatalf("%s does not answer: %v\n%s", what, err, said)
}

// Kill ends the server as a crash would: what it did not write is lost.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGQUIT)
	_ = s.cmd.Wait()
	s.cmd = nil
}

// URL is that of a database over the loopback.
func (s *Server) URL(database string) string {
	return "postgres://postgres@127.0.0.1:" + s.Port + "/" + database + "?sslmode=disable"
}

// Socket is the URL of a database over the socket.
func (s *Server) Socket(database string) string {
	return "postgres://postgres@/" + database + "?sslmode=disable&port=" + s.Port + "&host=" +
		url.QueryEscape(s.Dir)
}

// Database makes an empty database and returns its name.
func (s *Server) Database() string {
	s.t.Helper()
	name := fmt.Sprintf("d%d", databases.Add(1))
	s.SQL("postgres", "CREATE DATABASE "+name)
	return name
}

// SQL runs a statement in a database.
func (s *Server) SQL(database, sql string) {
	s.t.Helper()
	if err := try(s.URL(database), sql); err != nil {
		s.t.Fatal(err)
	}
}

// Rows returns the first column of the rows of a query, as text.
func (s *Server) Rows(database, sql string) []string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, s.URL(database))
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close(ctx)
	rows, err := c.Query(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		s.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (string, error) {
		return string(r.RawValues()[0]), nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

func try(url, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	_, err = c.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return err
}

// Bouncer starts pgbouncer in transaction mode before the server. It returns the URLs of databases
// behind it.
func (s *Server) Bouncer() (url func(database string) string) {
	s.t.Helper()
	path := "/usr/sbin/pgbouncer"
	if _, err := os.Stat(path); err != nil {
		needs.Skip(s.t, "pgbouncer is not installed")
	}
	port := Port(s.t)
	ini, users := filepath.Join(s.Dir, "bouncer.ini"), filepath.Join(s.Dir, "users")
	text := strings.NewReplacer("PORT", port, "SERVER", s.Port, "USERS", users).Replace(
		`[databases]
* = host=127.0.0.1 port=SERVER
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = PORT
unix_socket_dir =
auth_type = trust
auth_file = USERS
pool_mode = transaction
default_pool_size = 3
max_client_conn = 500
`)
	for file, content := range map[string]string{ini: text, users: `"postgres" ""` + "\n"} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			s.t.Fatal(err)
		}
		s.own(file)
	}
	cmd := s.command(path, ini)
	url = func(database string) string {
		return "postgres://postgres@127.0.0.1:" + port + "/" + database + "?sslmode=disable"
	}
	s.t.Cleanup(func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	s.start(cmd, "pgbouncer", url("postgres"))
	return url
}

// Standby starts a standby of the server, which Promote makes a primary.
func (s *Server) Standby() *Server {
	s.t.Helper()
	dir, err := os.MkdirTemp("/tmp", "pg")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { os.RemoveAll(dir) })
	b := &Server{t: s.t, bin: s.bin, Dir: dir, Port: Port(s.t)}
	b.own(dir)
	s.must(s.command("pg_basebackup", "-h", s.Dir, "-p", s.Port, "-U", "postgres", "-D",
		filepath.Join(dir, "data"), "-R", "-X", "stream", "-c", "fast", "--no-sync"))
	b.Run()
	s.t.Cleanup(b.Kill)
	return b
}

// Promote makes a standby a primary.
func (s *Server) Promote() {
	s.t.Helper()
	s.must(s.command("pg_ctl", "promote", "-w", "-D", filepath.Join(s.Dir, "data")))
}
