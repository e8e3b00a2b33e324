package remote

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// job is one allowed operation on its node.
type job struct {
	r       *Remote
	n       *node
	q       gate.Question
	d       gate.Decision
	decided gate.FileFacts // of SFTP operations
	max     int64          // bytes of a file
}

func (j *job) teller() *teller { return &teller{to: j.q.Progress, what: "bytes moved"} }

// Lookup finds the facts of an SFTP operation: the real path and what is there and, of sftp_put,
// the size of the local file. The error is a *gate.OpError.
func (r *Remote) Lookup(ctx context.Context, q gate.Question) (gate.Facts, error) {
	n, done, err := r.enter(q)
	if err != nil {
		return gate.Facts{}, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, least(q.Op.Timeout(), r.opts.ExecTimeout))
	defer cancel()
	var name string
	follow, local := true, int64(0)
	switch op := q.Op.(type) {
	case abi.SFTPStat:
		name = op.Path
	case abi.SFTPList:
		name = op.Path
	case abi.SFTPRead:
		name = op.Path
	case abi.SFTPWrite:
		name = op.Path
	case abi.SFTPGet:
		name = op.Path
		err = r.atRoot(q, func(root *os.Root) error { return vacant(root, op.Local, op.Overwrite) })
	case abi.SFTPPut:
		name = op.Path
		err = r.atRoot(q, func(root *os.Root) error {
			f, size, err := source(root, op.Local)
			if local = size; err == nil {
				f.Close()
			}
			return err
		})
	case abi.SFTPRemove:
		name, follow = op.Path, false
	default:
		return gate.Facts{}, failed("not_found", "%s has no facts to look up", q.Op.Import())
	}
	if err != nil {
		return gate.Facts{}, err
	}
	file, err := with(ctx, n, "looking up", name,
		func(_ context.Context, f *files, _ *pledge) (gate.FileFacts, error) {
			facts, _, err := f.look(name, follow)
			return facts, err
		})
	if err != nil {
		return gate.Facts{}, err
	}
	file.LocalBytes = local
	return gate.Facts{File: &file}, nil
}

func (r *Remote) atRoot(q gate.Question, do func(*os.Root) error) error {
	root, err := r.local(q.Call.Principal.ID)
	if err != nil {
		return err
	}
	defer root.Close()
	return do(root)
}

func (j *job) stat(ctx context.Context, op abi.SFTPStat) (gate.Result, error) {
	return with(ctx, j.n, "reading", op.Path,
		func(_ context.Context, f *files, _ *pledge) (gate.Result, error) {
			now, info, err := f.again(op.Path, true, j.decided)
			if err != nil {
				return gate.Result{}, err
			}
			if info == nil {
				return gate.Result{}, fs.ErrNotExist
			}
			v := fileInfo(info)
			v.Name, v.NameB64, v.RealPath = "", "", now.RealPath
			return gate.Result{Value: v}, nil
		})
}

func (j *job) list(ctx context.Context, op abi.SFTPList) (gate.Result, error) {
	limit := int(least(int64(op.Limit), 10_000))
	return with(ctx, j.n, "listing", op.Path,
		func(ctx context.Context, f *files, _ *pledge) (gate.Result, error) {
			now, _, err := f.again(op.Path, true, j.decided)
			switch {
			case err != nil:
				return gate.Result{}, err
			case !now.Exists:
				return gate.Result{}, fs.ErrNotExist
			case now.Type != "dir":
				return gate.Result{}, failed("not_a_file", "%q is a %s, not a directory",
					now.RealPath, now.Type)
			}
			infos, cut, err := f.entries(ctx, now.RealPath, limit)
			v := abi.ListResponse{Entries: []abi.FileInfo{}, Truncated: cut}
			for _, i := range infos {
				v.Entries = append(v.Entries, fileInfo(i))
			}
			return gate.Result{Value: v}, err
		})
}

func (j *job) read(ctx context.Context, op abi.SFTPRead) (gate.Result, error) {
	limit := least(op.MaxBytes, j.d.Obligations.MaxBytes, maxData)
	return with(ctx, j.n, "reading", op.Path,
		func(_ context.Context, f *files, _ *pledge) (gate.Result, error) {
			now, _, err := f.again(op.Path, true, j.decided)
			if err != nil {
				return gate.Result{}, err
			}
			v, err := f.read(now, limit)
			return gate.Result{Value: v, Bytes: v.Bytes}, err
		})
}

func (j *job) write(ctx context.Context, op abi.SFTPWrite) (gate.Result, error) {
	data, err := op.Data.Bytes()
	if err != nil {
		return gate.Result{}, failed("bad_input", "data: %v", err)
	}
	if limit := min(j.max, maxData); int64(len(data)) > limit {
		return gate.Result{}, failed("too_large", "%d bytes are more than the %d that are allowed",
			len(data), limit)
	}
	u := upload{asked: op.Path, decided: j.decided, src: bytes.NewReader(data),
		size: int64(len(data)), mode: op.Mode, overwrite: op.Overwrite, tell: j.teller()}
	return j.put(ctx, "writing", u)
}

func (j *job) put(
	ctx context.Context, what string, u upload, after ...func() error,
) (gate.Result, error) {
	return with(ctx, j.n, what, u.asked,
		func(ctx context.Context, f *files, p *pledge) (gate.Result, error) {
			v, err := f.put(ctx, p, u)
			return written(v), err
		}, after...)
}

func (j *job) upload(ctx context.Context, op abi.SFTPPut) (gate.Result, error) {
	root, err := j.r.local(j.q.Call.Principal.ID)
	if err != nil {
		return gate.Result{}, err
	}
	defer root.Close()
	src, size, err := source(root, op.Local)
	if err != nil {
		return gate.Result{}, err
	}
	switch {
	case size > j.max:
		err = failed("too_large", "local %q has %d bytes, %d are allowed", op.Local, size, j.max)
	case size != j.decided.LocalBytes:
		err = failed("changed", "local %q had %d bytes when it was decided and has %d now; "+
			"nothing was sent", op.Local, j.decided.LocalBytes, size)
	}
	if err != nil {
		src.Close()
		return gate.Result{}, err
	}
	u := upload{asked: op.Path, decided: j.decided, src: src, size: size, mode: op.Mode,
		overwrite: op.Overwrite, tell: j.teller(), digest: j.q.Call.Files[op.Local]}
	return j.put(ctx, "uploading", u, src.Close)
}

func (j *job) download(ctx context.Context, op abi.SFTPGet) (gate.Result, error) {
	root, err := j.r.local(j.q.Call.Principal.ID)
	if err != nil {
		return gate.Result{}, err
	}
	tell, limit := j.teller(), least(op.MaxBytes, j.max)
	return with(ctx, j.n, "downloading", op.Path,
		func(ctx context.Context, f *files, p *pledge) (gate.Result, error) {
			v := abi.WriteResponse{Local: op.Local}
			save := saving{root: root, folder: folder(j.q.Call.Principal.ID), name: op.Local,
				overwrite: op.Overwrite, commit: func() error {
					if op.SHA256 != "" && op.SHA256 != v.SHA256 {
						return failed("changed", "%q has other bytes than were expected (sha256 "+
							"%s, want %s); local %q was not changed", op.Path, v.SHA256, op.SHA256,
							op.Local)
					}
					if !p.send() {
						return ctx.Err()
					}
					return nil
				}}
			err := j.r.receive(save, func(w io.Writer) (size int64, err error) {
				now, _, err := f.again(op.Path, true, j.decided)
				if err != nil {
					return 0, err
				}
				v.Bytes, v.SHA256, err = f.get(ctx, now, w, limit, tell)
				return v.Bytes, err
			})
			return written(v), err
		}, root.Close)
}

func (j *job) remove(ctx context.Context, op abi.SFTPRemove) (gate.Result, error) {
	return with(ctx, j.n, "removing", op.Path,
		func(_ context.Context, f *files, p *pledge) (gate.Result, error) {
			return gate.Result{Value: struct{}{}}, f.remove(p, op.Path, j.decided)
		})
}
