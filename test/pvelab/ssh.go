package pvelab

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
)

// maxSessions on one connection, as OpenSSH has it by default.
const maxSessions = 10

// key reads or makes an ed25519 key pair: the private key 0600 at name, the public one beside it.
func key(name, comment string) (ssh.Signer, error) {
	b, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		_, priv, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("making key %s: %w", name, err)
		}
		block, err := ssh.MarshalPrivateKey(priv, comment)
		if err != nil {
			return nil, fmt.Errorf("making key %s: %w", name, err)
		}
		b = pem.EncodeToMemory(block)
		if err := os.WriteFile(name, b, 0o600); err != nil {
			return nil, fmt.Errorf("writing key %s: %w", name, err)
		}
	} else if err != nil {
		return nil, fmt.Errorf("reading key %s: %w", name, err)
	}
	s, err := ssh.ParsePrivateKey(b)
	if err != nil {
		return nil, fmt.Errorf("reading key %s: %w", name, err)
	}
	return s, os.WriteFile(name+".pub", ssh.MarshalAuthorizedKey(s.PublicKey()), 0o600)
}

// listen makes the keys and starts one server for each node.
func (l *Lab) listen() error {
	l.Identity = filepath.Join(l.dir, "id_ed25519")
	client, err := key(l.Identity, "pvelab client")
	if err != nil {
		return err
	}
	conf := ssh.ServerConfig{
		ServerVersion: "SSH-2.0-OpenSSH_10.0p2 pvelab",
		PublicKeyCallback: func(c ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
			if c.User() != "root" || !slices.Equal(k.Marshal(), client.PublicKey().Marshal()) {
				return nil, errors.New("permission denied")
			}
			return nil, nil
		},
	}
	var names []string
	if err := l.db.view(func(s *State) {
		for _, n := range s.Nodes {
			names = append(names, n.Name)
		}
	}); err != nil {
		return err
	}
	known := ""
	for i, name := range names {
		host, err := key(filepath.Join(l.dir, "ssh_host_ed25519_key."+name), name)
		if err != nil {
			return err
		}
		l.HostKeys[name] = ssh.FingerprintSHA256(host.PublicKey())
		conf := conf
		conf.AddHostKey(host)
		addr := "127.0.0.1:0"
		if i == 0 && l.opt.Listen != "" {
			addr = l.opt.Listen
		}
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return fmt.Errorf("pvelab: listening for %s: %w", name, err)
		}
		l.Nodes[name] = ln.Addr().String()
		if i == 0 {
			l.Addr = ln.Addr().String()
		}
		h, p, _ := net.SplitHostPort(ln.Addr().String())
		known += fmt.Sprintf("[%s]:%s %s", h, p, ssh.MarshalAuthorizedKey(host.PublicKey()))
		l.mu.Lock()
		l.closers = append(l.closers, ln)
		l.mu.Unlock()
		l.work.Add(1)
		go func() {
			defer l.work.Done()
			l.accept(ln, name, &conf)
		}()
	}
	if err := os.WriteFile(filepath.Join(l.dir, "known_hosts"), []byte(known), 0o600); err != nil {
		return fmt.Errorf("pvelab: writing known_hosts: %w", err)
	}
	return nil
}

func (l *Lab) accept(ln net.Listener, node string, conf *ssh.ServerConfig) {
	for {
		nc, err := ln.Accept()
		if err != nil {
			return // closed
		}
		l.mu.Lock()
		drop := l.closed || l.down(node)
		if !drop {
			l.conns[nc] = node
			l.work.Add(1)
		}
		l.mu.Unlock()
		if drop {
			nc.Close()
			continue
		}
		go func() {
			defer l.work.Done()
			defer func() {
				nc.Close()
				l.mu.Lock()
				delete(l.conns, nc)
				l.mu.Unlock()
			}()
			l.serve(nc, node, conf)
		}()
	}
}

func (l *Lab) down(node string) (down bool) {
	_ = l.db.view(func(s *State) { n := s.node(node); down = n == nil || n.Down })
	return down
}

func (l *Lab) serve(nc net.Conn, node string, conf *ssh.ServerConfig) {
	conn, chans, reqs, err := ssh.NewServerConn(nc, conf)
	if err != nil {
		return // a client that left or has no key
	}
	defer conn.Close()
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() {
		for r := range reqs {
			_ = r.Reply(false, nil) // keepalive@openssh.com wants an answer, not a yes
		}
	})
	slots := make(chan struct{}, maxSessions)
	for nch := range chans {
		if nch.ChannelType() != "session" {
			_ = nch.Reject(ssh.Prohibited, "administratively prohibited")
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = nch.Reject(ssh.ResourceShortage, "open failed")
			continue
		}
		ch, reqs, err := nch.Accept()
		if err != nil {
			<-slots
			continue
		}
		work.Go(func() {
			defer func() { <-slots }()
			l.session(ch, reqs, node)
		})
	}
}

// session serves one channel. Its program may outlive it: closing the channel signals nothing, as
// OpenSSH does without a terminal, and what runs inside a container keeps the channel open.
func (l *Lab) session(ch ssh.Channel, reqs <-chan *ssh.Request, node string) {
	var env []string
	var self *process
	started := false
	var work sync.WaitGroup
	defer work.Wait()
	for r := range reqs {
		var body struct{ Value string }
		var start func() // after the reply: a quick command would close the channel before it
		ok := false
		switch r.Type {
		case "env":
			var kv struct{ Name, Value string }
			if ssh.Unmarshal(r.Payload, &kv) == nil && len(env) < 100 && !l.nodeNow(node).NoEnv {
				env, ok = append(env, kv.Name+"="+kv.Value), true
			}
		case "pty-req", "window-change":
			ok = true
		case "exec", "shell":
			if started || (r.Type == "exec" && ssh.Unmarshal(r.Payload, &body) != nil) {
				break
			}
			started, ok = true, true
			ctx, s, end := l.spawn(l.ctx, "nodes/"+node, []string{"sshd: root@notty"})
			self = s
			sent := slices.Clone(env)
			start = func() {
				defer end()
				l.request(ctx, ch, node, body.Value, sent, s)
			}
		case "subsystem":
			if started || ssh.Unmarshal(r.Payload, &body) != nil || body.Value != "sftp" ||
				l.nodeNow(node).NoSFTP {
				break
			}
			started, ok = true, true
			start = func() {
				defer ch.Close()
				l.serveSFTP(ch, node)
			}
		case "signal":
			if ok = ssh.Unmarshal(r.Payload, &body) == nil && self != nil; ok {
				self.signal(signalNumber(body.Value))
			}
		}
		if r.WantReply {
			_ = r.Reply(ok, nil)
		}
		if start != nil {
			work.Go(start)
		}
	}
	if !started {
		ch.Close()
	}
}

// loginEnv is what sshd gives a session, with what the client was allowed to send.
func loginEnv(sent []string) []string {
	return append(
		[]string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"HOME=/root",
			"USER=root",
			"LOGNAME=root",
			"SHELL=/bin/bash",
			"SSH_CONNECTION=127.0.0.1 40000 127.0.0.1 22",
		},
		sent...)
}

// request runs an exec request's text in the node's login shell.
func (l *Lab) request(ctx context.Context, ch ssh.Channel, node, text string, env []string,
	self *process) {
	defer ch.Close()
	gone := func() { self.signal(sigPIPE) }
	out, errw := &syncWriter{w: ch, broken: gone}, &syncWriter{w: ch.Stderr(), broken: gone}
	in, closeIn, err := pipeFrom(io.Reader(ch))
	if err != nil {
		return
	}
	defer closeIn()
	t := l.nodeTree(node)
	if t == nil {
		return
	}
	sess := &session{text: text}
	p := &proc{
		lab:  l,
		node: node,
		tree: t,
		args: []string{"bash"},
		env:  loginEnv(env),
		dir:  "/root",
		in:   in,
		out:  out,
		err:  errw,
		sess: sess,
		self: self,
		top:  true,
	}
	code := 0
	if text == "" { // a shell without a terminal reads its commands from its input
		var b strings.Builder
		_ = lines(in, func(line []byte) bool { b.Write(line); return b.Len() < 1<<20 })
		text, p.in = b.String(), nil
		sess.text = text
	}
	at := l.nodeNow(node)
	if at.Startup != "" {
		p.shell(ctx, "bash", at.Startup, nil)
	}
	if at.Fish {
		text = strings.ReplaceAll(text, `\\`, `\`)
	}
	code = p.shell(ctx, "bash", text, nil)
	if sess.mu.Lock(); !sess.ran {
		l.effects.add(Effect{Node: node, Kind: "exec", Text: text})
	}
	sess.mu.Unlock()
	var s signalled
	if errors.As(context.Cause(ctx), &s) && s.num != sigPIPE {
		name := map[int]string{sigHUP: "HUP", sigINT: "INT", sigKILL: "KILL",
			sigTERM: "TERM"}[s.num]
		_, _ = ch.SendRequest("exit-signal", false, ssh.Marshal(struct {
			Signal     string
			Core       bool
			Text, Lang string
		}{Signal: name}))
	} else {
		_, _ = ch.SendRequest("exit-status", false,
			ssh.Marshal(struct{ Code uint32 }{uint32(code & 0xff)}))
	}
	l.finish(sess)
	// a leftover holds the channel open, and hangs a client that waits for its end (facts 1.10)
	sess.left.Wait()
}
