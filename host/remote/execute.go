package remote

import (
	"context"
	"encoding/base64"
	"os"
	"strings"

	"github.com/caponier-mcp/caponier/host/remote/internal/command"
	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/remote/internal/files"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// Execute runs an allowed operation, on the facts that were decided. The error is a *terms.OpError;
// its outcome is Unknown when a request that may have had an effect was sent and no answer came, or
// none that can be believed.
func (r *Remote) Execute(
	ctx context.Context, q terms.Question, d terms.Decision,
) (res terms.Result, err error) {
	if !d.Allow {
		return res, effect.Failed("refused", "%s was not allowed", q.Op.Import())
	}
	if op, is := q.Op.(abi.Discard); is {
		return r.discard(ctx, terms.StageDir{Node: op.Node, Dir: op.Path})
	}
	n, done, err := r.nodeOf(q)
	if err != nil {
		return res, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx,
		least(q.Op.Timeout(), d.Obligations.Timeout, r.opts.ExecTimeout))
	defer cancel()
	j := &job{r: r, n: n, q: q, d: d, max: least(d.Obligations.MaxBytes, r.opts.MaxFile)}
	switch op := q.Op.(type) {
	case abi.SSHExec:
		res, err = j.exec(ctx, op)
	case abi.SSHScript:
		res, err = j.command(ctx, nil, op.MaxBytes)
	case abi.Stage:
		res, err = j.stage(ctx)
	default:
		res, err = j.file(ctx)
	}
	if err != nil {
		return terms.Result{}, err
	}
	return res, nil
}

// nodeOf finds the node of a question. done must be called.
func (r *Remote) nodeOf(q terms.Question) (n *node, done func(), err error) {
	name := q.Op.NodeName()
	if q.Node != nil && q.Node.Name != name {
		return nil, nil, effect.Failed("not_found", "%q is not the node that was decided, %q", name,
			q.Node.Name)
	}
	return r.enter(name)
}

func (j *job) exec(ctx context.Context, op abi.SSHExec) (terms.Result, error) {
	stdin := []byte(op.Stdin)
	if op.StdinB64 != "" {
		var err error
		stdin, err = base64.StdEncoding.Strict().DecodeString(op.StdinB64)
		if err != nil || op.Stdin != "" {
			return terms.Result{}, effect.Failed("bad_input", "stdin_b64 must be base64, and alone")
		}
	}
	res, err := j.command(ctx, stdin, op.MaxBytes)
	if v, is := res.Value.(abi.ExecResponse); is {
		v.Rendered = ""
		res.Value = v
	}
	return res, err
}

// command sends the rendering that was decided, to a shell that is known to read it as it was
// meant.
func (j *job) command(ctx context.Context, stdin []byte, limit int64) (terms.Result, error) {
	cmd := j.q.Cmd
	if cmd == nil || !cmd.Parsed || cmd.Rendered == "" {
		return terms.Result{}, effect.Failed("bad_input",
			"%s has no decided command", j.q.Op.Import())
	}
	e, err := command.Run(ctx, j.n.Node.Node, command.Command{Who: j.q.Call.Principal.ID,
		Text: cmd.Rendered, Stdin: stdin, Max: least(limit, j.d.Obligations.MaxBytes, maxOutput)})
	if err != nil {
		return terms.Result{}, err
	}
	if guard := command.GuardOf(e); guard != "" {
		return terms.Result{}, effect.Failed(command.NotPermitted,
			"the command did not run on %s: %s",
			j.n.Name, guard)
	}
	return resultOf(e, cmd.Rendered), nil
}

// fileOp is what an SFTP operation does at a path.
type fileOp struct {
	verb, path string
	link       bool // it concerns the path itself, even if that is a symbolic link
	ahead      bool // it makes the directories above the path that are missing
	opens      bool // it opens a file, and checks the facts when that is open
	run        func(*visit) (terms.Result, error)
	// local examines the local file, and returns the number of bytes to upload. It may be nil.
	local func(root *os.Root) (bytes int64, err error)
}

func (j *job) fileOp() (fileOp, error) {
	switch op := j.q.Op.(type) {
	case abi.SFTPStat:
		return fileOp{verb: "reading", path: op.Path, run: (*visit).stat}, nil
	case abi.SFTPList:
		list := func(v *visit) (terms.Result, error) {
			return v.list(int(least(int64(op.Limit), 10_000)))
		}
		return fileOp{verb: "listing", path: op.Path, run: list}, nil
	case abi.SFTPRead:
		read := func(v *visit) (terms.Result, error) {
			return v.read(least(op.MaxBytes, j.d.Obligations.MaxBytes, maxData))
		}
		return fileOp{verb: "reading", path: op.Path, opens: true, run: read}, nil
	case abi.SFTPWrite:
		write := func(v *visit) (terms.Result, error) { return v.write(op) }
		return fileOp{verb: "writing", path: op.Path, run: write}, nil
	case abi.SFTPGet:
		download := func(v *visit) (terms.Result, error) { return v.download(op) }
		local := func(root *os.Root) (int64, error) {
			return 0, files.Vacant(root, op.Local, op.Overwrite)
		}
		return fileOp{verb: "downloading", path: op.Path, opens: true, run: download,
			local: local}, nil
	case abi.SFTPPut:
		upload := func(v *visit) (terms.Result, error) { return v.upload(op) }
		local := func(root *os.Root) (int64, error) {
			f, size, err := files.Source(root, op.Local)
			if err == nil {
				f.Close()
			}
			return size, err
		}
		return fileOp{verb: "uploading", path: op.Path, run: upload, local: local,
			ahead: op.Parents}, nil
	case abi.SFTPRemove:
		return fileOp{verb: "removing", path: op.Path, link: true, run: (*visit).remove}, nil
	}
	return fileOp{}, effect.Failed("not_found", "%s is not an operation on files of nodes",
		j.q.Op.Import())
}

// Lookup finds the facts of an SFTP operation: the real path and what is there and, of sftp_put,
// the size of the local file. Of a command it finds the names of its units and what it touches, as
// far as the question lacks that. The error is a
// *terms.OpError.
func (r *Remote) Lookup(ctx context.Context, q terms.Question) (terms.Facts, error) {
	n, done, err := r.nodeOf(q)
	if err != nil {
		return terms.Facts{}, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, least(q.Op.Timeout(), r.opts.ExecTimeout))
	defer cancel()
	if q.Cmd != nil {
		facts := terms.Facts{}
		if q.Units != nil {
			facts, err = n.units.of(ctx, n.ask(q.Call.Principal.ID, maxAsk), n.Name, q.Units)
		}
		if err == nil && q.Lacks != nil {
			facts.Touches, err = touched(ctx, n.ask(q.Call.Principal.ID, maxSurvey), n.Name,
				q.Lacks)
		}
		return facts, err
	}
	j := &job{r: r, n: n, q: q}
	op, err := j.fileOp()
	if err != nil {
		return terms.Facts{}, err
	}
	local := int64(0)
	if op.local != nil {
		root, err := r.workspace.Open(q.Call.Principal.ID)
		if err != nil {
			return terms.Facts{}, err
		}
		defer root.Close()
		if local, err = op.local(root); err != nil {
			return terms.Facts{}, err
		}
	}
	// The directory that a planned call staged was not made. What is downloaded from it is a file
	// that another step puts there.
	if q.Call.Planning && strings.HasPrefix(op.path, abi.PlannedStages) {
		facts := &terms.FileFacts{RealPath: op.path, LocalBytes: local}
		if _, get := q.Op.(abi.SFTPGet); get {
			facts.Exists, facts.Type = true, "file"
		}
		return terms.Facts{File: facts}, nil
	}
	file, err := files.With(ctx, n.Node, "looking up", op.path,
		func(_ context.Context, f *files.Session, _ *effect.Pledge) (terms.FileFacts, error) {
			facts, _, err := look(f, op.path, op.link, op.ahead)
			return facts, err
		})
	if err != nil {
		return terms.Facts{}, err
	}
	file.LocalBytes = local
	return terms.Facts{File: &file}, nil
}

// file runs an SFTP operation if the facts at its path are still those that were decided.
func (j *job) file(ctx context.Context) (terms.Result, error) {
	op, err := j.fileOp()
	if err != nil {
		return terms.Result{}, err
	}
	if j.q.Facts.File == nil {
		return terms.Result{}, effect.Failed("changed",
			"%s was not looked up before it was decided",
			j.q.Op.Import())
	}
	return files.With(ctx, j.n.Node, op.verb, op.path,
		func(ctx context.Context, f *files.Session, p *effect.Pledge) (terms.Result, error) {
			v := &visit{ctx: ctx, Session: f, job: j, pledge: p, path: op.path, link: op.link,
				ahead: op.ahead}
			if op.opens {
				return op.run(v)
			}
			if err := v.check(); err != nil {
				return terms.Result{}, err
			}
			return op.run(v)
		})
}
