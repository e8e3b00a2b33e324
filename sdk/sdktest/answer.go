package sdktest

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/caponier-mcp/caponier/sdk"
	"github.com/caponier-mcp/caponier/sdk/internal/abi"
)

// answer calls the hook of an operation.
func (h *Host) answer(name string, request []byte) (any, error) {
	switch name {
	case "ssh_exec":
		return with(h, name, request, h.SSHExec != nil, func(q abi.ExecRequest) (any, error) {
			stdin, err := abi.Join(q.Stdin, q.StdinB64)
			if err != nil {
				return nil, &sdk.BadRequest{Field: "stdin_b64", Message: err.Error()}
			}
			return ran(
				h.SSHExec(
					q.Node,
					q.Argv,
					sdk.ExecOptions{Stdin: stdin, MaxBytes: q.MaxBytes, Timeout: timeout(q.Common)},
				),
			)
		})
	case "ssh_script":
		return with(h, name, request, h.SSHScript != nil, func(q abi.ScriptRequest) (any, error) {
			return ran(
				h.SSHScript(
					q.Node,
					q.Script,
					sdk.ExecOptions{MaxBytes: q.MaxBytes, Timeout: timeout(q.Common)},
				),
			)
		})
	case "stage":
		return with(h, name, request, h.Stage != nil, func(q abi.OnNode) (any, error) {
			dir, err := h.Stage(q.Node)
			return abi.StageResponse{Dir: dir}, err
		})
	case "sftp_stat":
		return with(h, name, request, h.SFTPStat != nil, func(q abi.FileRequest) (any, error) {
			f, err := h.SFTPStat(q.Node, q.Path)
			return info(f), err
		})
	case "sftp_list":
		return with(h, name, request, h.SFTPList != nil, func(q abi.FileRequest) (any, error) {
			l, err := h.SFTPList(q.Node, q.Path, q.Limit)
			out := abi.ListResponse{Entries: []abi.FileInfo{}, Truncated: l.Truncated}
			for _, e := range l.Entries {
				out.Entries = append(out.Entries, info(e))
			}
			return out, err
		})
	case "sftp_read":
		return with(
			h,
			name,
			request,
			h.SFTPRead != nil,
			func(q abi.FileRequest) (any, error) { return readBack(h.SFTPRead(q.Node, q.Path, q.MaxBytes)) },
		)
	case "sftp_write":
		return with(h, name, request, h.SFTPWrite != nil, func(q abi.FileRequest) (any, error) {
			data, err := q.Data.Bytes()
			if err != nil {
				return nil, &sdk.BadRequest{Field: "b64", Message: err.Error()}
			}
			return written(h.SFTPWrite(q.Node, q.Path, data, files(q)))
		})
	case "sftp_get":
		return with(
			h,
			name,
			request,
			h.SFTPGet != nil,
			func(q abi.FileRequest) (any, error) { return written(h.SFTPGet(q.Node, q.Path, q.Local, files(q))) },
		)
	case "sftp_put":
		return with(
			h,
			name,
			request,
			h.SFTPPut != nil,
			func(q abi.FileRequest) (any, error) { return written(h.SFTPPut(q.Node, q.Local, q.Path, files(q))) },
		)
	case "sftp_remove":
		return with(
			h,
			name,
			request,
			h.SFTPRemove != nil,
			func(q abi.FileRequest) (any, error) { return struct{}{}, h.SFTPRemove(q.Node, q.Path) },
		)
	case "http_request":
		return with(h, name, request, h.HTTPRequest != nil, func(q abi.HTTPRequest) (any, error) {
			body, err := q.Data.Bytes()
			if err != nil {
				return nil, &sdk.BadRequest{Field: "b64", Message: err.Error()}
			}
			r, err := h.HTTPRequest(
				sdk.Request{
					Method:           q.Method,
					URL:              q.URL,
					Headers:          q.Headers,
					Body:             body,
					Credential:       q.Credential,
					MaxHops:          q.MaxHops,
					MaxBytes:         q.MaxBytes,
					Save:             q.Save,
					ReserveUSDMicros: q.ReserveUSDMicros,
					Timeout:          timeout(q.Common),
				},
			)
			out := abi.HTTPResponse{
				Data:    abi.NewData(r.Body),
				Status:  r.Status,
				Headers: r.Headers,
				Blob:    r.Blob,
				Bytes:   r.Bytes,
			}
			for _, hop := range r.Hops {
				out.Hops = append(out.Hops, abi.Hop(hop))
			}
			return out, err
		})
	case "blob_write":
		return with(
			h,
			name,
			request,
			h.BlobWrite != nil,
			func(q abi.BlobWriteRequest) (any, error) {
				data, err := q.Data.Bytes()
				if err != nil {
					return nil, &sdk.BadRequest{Field: "b64", Message: err.Error()}
				}
				b, err := h.BlobWrite(q.Name, q.MIME, data, time.Duration(q.TTLS)*time.Second)
				return abi.BlobWriteResponse(b), err
			},
		)
	case "blob_read":
		if q := (abi.BlobReadRequest{}); json.Unmarshal(request, &q) == nil && q.Local != "" {
			return with(
				h,
				name,
				request,
				h.BlobCopy != nil,
				func(q abi.BlobReadRequest) (any, error) { return written(h.BlobCopy(q.Blob, q.Local)) },
			)
		}
		return with(
			h,
			name,
			request,
			h.BlobRead != nil,
			func(q abi.BlobReadRequest) (any, error) { return readBack(h.BlobRead(q.Blob, q.Offset, q.MaxBytes)) },
		)
	case "ask":
		return with(h, name, request, h.Ask != nil, func(q abi.AskRequest) (any, error) {
			a, err := h.Ask(q.Key, q.Message, q.Schema)
			return abi.AskResponse{Action: a.Action, Content: a.Content}, err
		})
	}
	return nil, &sdk.BadRequest{Field: "import", Message: name + " is not an operation"}
}

func with[Q any](
	h *Host,
	name string,
	request []byte,
	hooked bool,
	answer func(Q) (any, error),
) (any, error) {
	h.t.Helper()
	if !hooked {
		h.t.Errorf("the tool asked for %s, for which the test has no hook: %s", name, request)
		return nil, &sdk.BadRequest{
			Field:   "import",
			Message: name + " is not available on this host",
		}
	}
	var q Q
	d := json.NewDecoder(bytes.NewReader(request))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return nil, &sdk.BadRequest{Message: err.Error()}
	}
	return answer(q)
}

func timeout(c abi.Common) time.Duration { return time.Duration(c.TimeoutMS) * time.Millisecond }

func files(q abi.FileRequest) sdk.FileOptions {
	return sdk.FileOptions{
		Mode:      q.Mode,
		Overwrite: q.Overwrite,
		MaxBytes:  q.MaxBytes,
		Timeout:   timeout(q.Common),
	}
}

func info(f sdk.FileInfo) abi.FileInfo {
	name, b64 := abi.Split([]byte(f.Name))
	return abi.FileInfo{
		Name:     name,
		NameB64:  b64,
		Type:     f.Type,
		Size:     f.Size,
		Mode:     abi.Mode(f.Mode),
		MTime:    f.ModTime.Unix(),
		RealPath: f.RealPath,
	}
}

func ran(r sdk.ExecResult, err error) (any, error) {
	out := abi.ExecResponse{
		Exit:      r.Exit,
		Signal:    r.Signal,
		Truncated: r.Truncated,
		Rendered:  r.Rendered,
	}
	out.Stdout, out.StdoutB64 = abi.Split(r.Stdout)
	out.Stderr, out.StderrB64 = abi.Split(r.Stderr)
	return out, err
}

func readBack(r sdk.ReadResult, err error) (any, error) {
	return abi.ReadResponse{Data: abi.NewData(r.Data), Bytes: int64(len(r.Data)), EOF: r.EOF}, err
}

func written(w sdk.Written, err error) (any, error) {
	return abi.WriteResponse{Bytes: w.Bytes, SHA256: w.SHA256, Local: w.Local}, err
}
