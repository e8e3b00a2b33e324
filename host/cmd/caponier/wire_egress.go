package main

import (
	"github.com/caponier-mcp/caponier/host/blob"
	"github.com/caponier-mcp/caponier/host/egress"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/store"
)

// openOutside wires what reaches no node: blobs and HTTP.
func (h *host) openOutside(o *gate.Options, s *store.Store) error {
	h.cfg.Blob.Index, h.cfg.Blob.Save = s, h.remote.Save
	blobs, err := blob.New(h.cfg.Blob)
	if err != nil {
		return err
	}
	h.closers = append(h.closers, func() { _ = blobs.Close() })
	h.cfg.Egress.Ledger, h.cfg.Egress.Keeper = s, blobs
	out, err := egress.New(h.cfg.Egress)
	if err != nil {
		return err
	}
	h.cfg.Identity.Client = out.Client()
	o.Executors["blob_write"], o.Executors["blob_read"], o.Executors["http_request"] = blobs, blobs,
		out
	return nil
}
