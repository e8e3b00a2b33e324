package sandbox

import (
	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/sandbox/meter"
)

// quota counts the pages by which the memory of one running instance has grown, since one principal
// may have only so many in all its instances. The zero quota allows all.
type quota struct {
	shares    *fair.Shares
	principal string
	pages     int
	refused   bool // a growth was
}

func (q *quota) grow(bytes uint64) bool {
	pages := int(bytes / meter.PageSize)
	if q.shares == nil || q.shares.TryAcquireN(q.principal, pages) {
		q.pages += pages
		return true
	}
	q.refused = true
	return false
}

func (q *quota) release() {
	if q.shares != nil && q.pages > 0 {
		q.shares.ReleaseN(q.principal, q.pages)
	}
	*q = quota{}
}
