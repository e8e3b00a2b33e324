package main

import (
	"context"

	"github.com/caponier-mcp/caponier/host/blob"
	"github.com/caponier-mcp/caponier/host/egress"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/store"
)

// openOutside wires what reaches no node: blobs and HTTP.
func (h *host) openOutside(o *gate.Options, s *store.Store) error {
	h.cfg.Blob.Index, h.cfg.Blob.Save = blobIndex{s}, h.remote.Save
	blobs, err := blob.New(h.cfg.Blob)
	if err != nil {
		return err
	}
	h.closers = append(h.closers, func() { _ = blobs.Close() })
	h.cfg.Egress.Ledger, h.cfg.Egress.Keeper = ledger{s}, blobs
	out, err := egress.New(h.cfg.Egress)
	if err != nil {
		return err
	}
	h.cfg.Identity.Client = out.Client()
	o.Executors["blob_write"], o.Executors["blob_read"], o.Executors["http_request"] = blobs, blobs, out
	return nil
}

// blobIndex and ledger are the store in the words of their users.
type blobIndex struct{ *store.Store }

func (x blobIndex) AddBlob(ctx context.Context, e blob.Entry, limit int64) error {
	return x.Store.AddBlob(ctx, store.Blob(e), limit)
}

func (x blobIndex) Blob(ctx context.Context, principal, id string) (blob.Entry, error) {
	b, err := x.Store.Blob(ctx, principal, id)
	return blob.Entry(b), err
}

type ledger struct{ *store.Store }

func (x ledger) Count(
	ctx context.Context,
	keys ...string,
) (counts []egress.Rate, giveBack func(), err error) {
	rates, giveBack, err := x.Store.Count(ctx, keys...)
	for _, r := range rates {
		counts = append(counts, egress.Rate(r))
	}
	return counts, giveBack, err
}
