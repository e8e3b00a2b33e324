package remote

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// raw is what there is to compare with: one x/crypto/ssh connection and nothing around it.
func raw(b *testing.B, s *sshtest.OpenSSH) *ssh.Client {
	b.Helper()
	pem, err := os.ReadFile(s.ClientFile)
	if err != nil {
		b.Fatal(err)
	}
	key, err := ssh.ParsePrivateKey(pem)
	if err != nil {
		b.Fatal(err)
	}
	c, err := ssh.Dial(
		"tcp",
		s.Addr,
		&ssh.ClientConfig{
			User:            s.User,
			Auth:            []ssh.AuthMethod{ssh.PublicKeys(key)},
			HostKeyCallback: ssh.FixedHostKey(s.HostKey()),
		},
	)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

func rawTrue(b *testing.B, c *ssh.Client) {
	session, err := c.NewSession()
	if err != nil {
		b.Fatal(err)
	}
	var out, errs bytes.Buffer
	session.Stdout, session.Stderr = &out, &errs
	if err := session.Run("'true'"); err != nil {
		b.Fatal(err)
	}
	session.Close()
}

// BenchmarkExecTrue alternates between `true` through Remote and through raw x/crypto/ssh on a warm
// connection to the same sshd, so that both meet the same machine. It reports both medians and 99th
// percentiles, and the ratio of the medians.
func BenchmarkExecTrue(b *testing.B) {
	s, o := openSSH(b)
	r := start(b, o)
	c := raw(b, s)
	mustExec(b, r, "true")
	rawTrue(b, c)
	var ours, theirs []time.Duration
	b.ResetTimer()
	for range b.N {
		began := time.Now()
		mustExec(b, r, "true")
		ours = append(ours, time.Since(began))
		began = time.Now()
		rawTrue(b, c)
		theirs = append(theirs, time.Since(began))
	}
	at := func(d []time.Duration, p int) float64 {
		slices.Sort(d)
		return float64(d[len(d)*p/100].Microseconds())
	}
	b.ReportMetric(at(ours, 50), "remote-p50-us")
	b.ReportMetric(at(theirs, 50), "raw-p50-us")
	b.ReportMetric(at(ours, 99), "remote-p99-us")
	b.ReportMetric(at(theirs, 99), "raw-p99-us")
	b.ReportMetric(at(ours, 50)/at(theirs, 50), "ratio-p50")
}

// BenchmarkExecCallers measures commands a second with several callers at once.
func BenchmarkExecCallers(b *testing.B) {
	for _, callers := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			_, o := openSSH(b)
			r := start(b, o)
			mustExec(b, r, "true")
			b.ResetTimer()
			began := time.Now()
			work := make(chan struct{}, b.N)
			for range b.N {
				work <- struct{}{}
			}
			close(work)
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					for range work {
						if v, err := execute(b.Context(), r, "true"); err != nil || v.Exit != 0 {
							b.Errorf("%+v, %v", v, err)
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "exec/s")
		})
	}
}

// BenchmarkTransfer moves 100 MB each way through Remote, with scp, and with pkg/sftp's concurrent
// reads and writes, in turns, and reports MB/s and their ratios. Only ours takes the digest, on
// both sides. scp's connecting is in its time; ours is not: a run of `scp` with an empty file is
// measured and taken off.
func BenchmarkTransfer(b *testing.B) {
	scp, err := exec.LookPath("scp")
	if err != nil {
		sshtest.Missing(b, "openssh-client")
	}
	const size = 100 << 20
	s, o := openSSH(b)
	o.MaxFile = size
	r := start(b, o)
	data := make([]byte, size)
	rand.Read(data)
	ws := filepath.Join(o.Workspace, "agent-a")
	node := b.TempDir()
	if err := os.MkdirAll(ws, 0o700); err != nil {
		b.Fatal(err)
	}
	os.WriteFile(ws+"/up", data, 0o600)
	os.WriteFile(ws+"/empty", nil, 0o600)
	os.WriteFile(node+"/down", data, 0o600)
	host, port, _ := net.SplitHostPort(s.Addr)
	theirs := func(from, to string) time.Duration {
		began := time.Now()
		out, err := exec.Command(scp, "-q", "-F", "/dev/null", "-P", port, "-i", s.ClientFile, "-o",
			"StrictHostKeyChecking=no", "-o", "UserKnownHostsFile="+node+"/known", from, to).
			CombinedOutput()
		if err != nil {
			b.Fatalf("scp: %v: %s", err, out)
		}
		return time.Since(began)
	}
	at := s.User + "@" + host + ":"
	ours := func(op abi.Op) time.Duration {
		began := time.Now()
		if _, err := do(b.Context(), r, op, yellow); err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
	ours(abi.SFTPStat{OnNode: on("n1"), Path: node})
	connect := min(theirs(ws+"/empty", at+node+"/e"), theirs(ws+"/empty", at+node+"/e"))
	client, err := sftp.NewClient(raw(b, s), sftp.UseConcurrentWrites(true),
		sftp.UseConcurrentReads(true))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	var put, get, scpPut, scpGet, libPut, libGet, syncPut, syncGet time.Duration
	b.ResetTimer()
	for range b.N {
		put += ours(
			abi.SFTPPut{OnNode: on("n1"), Local: "up", Path: node + "/up", Overwrite: true},
		)
		for durably, took := range map[bool]*time.Duration{false: &libPut, true: &syncPut} {
			*took += library(b, durably,
				func() (io.ReadCloser, error) { return os.Open(ws + "/up") },
				func() (io.WriteCloser, error) { return client.Create(node + "/up3") })
		}
		scpPut += theirs(ws+"/up", at+node+"/up2") - connect
		get += ours(
			abi.SFTPGet{OnNode: on("n1"), Path: node + "/down", Local: "down", Overwrite: true},
		)
		for durably, took := range map[bool]*time.Duration{false: &libGet, true: &syncGet} {
			*took += library(b, durably,
				func() (io.ReadCloser, error) { return client.Open(node + "/down") },
				func() (io.WriteCloser, error) { return os.Create(ws + "/down3") })
		}
		scpGet += theirs(at+node+"/down", ws+"/down2") - connect
	}
	mb := func(d time.Duration) float64 { return float64(b.N) * size / 1e6 / d.Seconds() }
	b.ReportMetric(mb(put), "put-MB/s")
	b.ReportMetric(mb(scpPut), "scp-put-MB/s")
	b.ReportMetric(float64(scpPut)/float64(put), "ratio-put")
	b.ReportMetric(mb(get), "get-MB/s")
	b.ReportMetric(mb(scpGet), "scp-get-MB/s")
	b.ReportMetric(float64(scpGet)/float64(get), "ratio-get")
	b.ReportMetric(float64(libPut)/float64(put), "ratio-put-pkg-sftp")
	b.ReportMetric(float64(libGet)/float64(get), "ratio-get-pkg-sftp")
	b.ReportMetric(float64(syncPut)/float64(put), "ratio-put-pkg-sftp-synced")
	b.ReportMetric(float64(syncGet)/float64(get), "ratio-get-pkg-sftp-synced")
}

// library copies as a program would that uses pkg/sftp: its files do it concurrently.
func library(b *testing.B, durably bool, from func() (io.ReadCloser, error),
	to func() (io.WriteCloser, error)) time.Duration {
	b.Helper()
	began := time.Now()
	in, err := from()
	if err != nil {
		b.Fatal(err)
	}
	out, err := to()
	if err != nil {
		b.Fatal(err)
	}
	_, err = io.Copy(out, in)
	var durable error
	if f, ok := out.(interface{ Sync() error }); ok && durably {
		durable = f.Sync()
	}
	if err := errors.Join(err, durable, out.Close(), in.Close()); err != nil {
		b.Fatal(err)
	}
	return time.Since(began)
}

// BenchmarkTransferMemory moves 10 GB each way and reports by how much the memory in use grew. It
// needs 20 GB of disk.
func BenchmarkTransferMemory(b *testing.B) {
	const size = 10_000_000_000
	_, o := openSSH(b)
	o.MaxFile = size
	r := start(b, o)
	node := b.TempDir()
	if err := os.WriteFile(node+"/down", nil, 0o600); err != nil {
		b.Fatal(err)
	}
	if err := os.Truncate(node+"/down", size); err != nil {
		b.Fatal(err)
	}
	if _, err := do(b.Context(), r, abi.SFTPStat{OnNode: on("n1"), Path: node},
		yellow); err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	for range b.N {
		peak := watchMemory(b)
		if _, err := do(b.Context(), r, abi.SFTPGet{OnNode: on("n1"), Path: node + "/down",
			Local: "f", Overwrite: true}, yellow); err != nil {
			b.Fatal(err)
		}
		if _, err := do(b.Context(), r, abi.SFTPPut{OnNode: on("n1"), Local: "f", Path: node +
			"/up", Overwrite: true}, yellow); err != nil {
			b.Fatal(err)
		}
		grew := peak()
		b.ReportMetric(float64(grew)/(1<<20), "MiB-grown")
		if grew > 32<<20 {
			b.Errorf("memory grew by %d MiB", grew>>20)
		}
	}
}
