package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/audit/index"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/console"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/caponier-mcp/caponier/host/shadow"
)

// panels are the pages of the console about the host.
type panels struct {
	cfg   *config.Config
	store state
	index *index.Index
	// of a server, nil in others
	pool     func() []remote.NodeState
	revision func() string
}

func (r *panels) nodes(context.Context) ([]console.Table, error) {
	t := console.Table{Caption: "Nodes of the configuration",
		Head: []string{"Node", "Cluster", "Host", "User"}}
	for _, n := range r.cfg.Remote.Nodes {
		t.Rows = append(t.Rows, []string{n.Name, n.Cluster, n.Host, n.User})
	}
	pool := console.Table{Caption: "Connections of this process",
		Head: []string{"Node", "Connections", "Sessions", "Waiting"}}
	if r.pool == nil {
		pool.Caption += ": it opens none; the page of `caponier serve --http` shows those"
		return []console.Table{t, pool}, nil
	}
	for _, n := range r.pool() {
		pool.Rows = append(pool.Rows, []string{n.Name, strconv.Itoa(n.Connections),
			strconv.Itoa(n.Sessions), strconv.Itoa(n.Waiting)})
	}
	return []console.Table{t, pool}, nil
}

func (r *panels) locked(context.Context) ([]console.Table, error) {
	lock, err := plugin.Load(r.cfg.Plugin.Lock)
	if err != nil {
		return nil, err
	}
	t := console.Table{Caption: "Plugins of the lock, whose checksum is " + lock.Checksum(),
		Head: []string{"Plugin", "Version", "Digest", "Signed by", "Tools"}}
	for _, e := range lock.Plugins() {
		var tools []string
		for _, tool := range lock.Tools() {
			if tool.Plugin.Name == e.Name {
				tools = append(tools, tool.Name)
			}
		}
		by := "nobody"
		if e.Signed != nil {
			by = e.Signed.By
		}
		t.Rows = append(t.Rows, []string{e.Name, e.Version, e.Digest, by,
			strings.Join(tools, "\n")})
	}
	return []console.Table{t}, nil
}

// mostShadows bounds the candidates that are shown, the last ones that were asked.
const mostShadows = 3

func (r *panels) policy(ctx context.Context) ([]console.Table, error) {
	t := console.Table{Caption: "Revisions of the policy", Head: []string{"Revision", "Where"}}
	if r.revision != nil {
		t.Rows = append(t.Rows, []string{r.revision(), "in force in this process"})
	}
	p, err := r.index.Find(ctx, audit.Query{}, index.Mark{}, 1)
	if err != nil {
		return nil, err
	}
	for _, f := range p.Calls {
		_, records, _, err := r.index.Call(ctx, f.Call)
		if err != nil {
			return nil, err
		}
		for _, rec := range records[:min(len(records), 1)] {
			t.Rows = append(t.Rows, []string{rec.Revision,
				"decided the newest call of the journal"})
		}
	}
	all := []console.Table{t}
	books, err := os.ReadDir(shadowDir(r.cfg))
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	} else if err != nil {
		return nil, err
	}
	when := func(e os.DirEntry) time.Time {
		info, err := e.Info()
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	slices.SortFunc(books, func(a, b os.DirEntry) int { return when(b).Compare(when(a)) })
	for _, b := range books[:min(len(books), mostShadows)] {
		revision, is := strings.CutSuffix(b.Name(), ".jsonl")
		if !is {
			continue
		}
		report, err := shadow.Read(shadowDir(r.cfg), filepath.Base(revision), time.Time{})
		if err != nil {
			return nil, err
		}
		all = append(all, differences(report))
	}
	return all, nil
}

// differences shows what a candidate would decide otherwise.
func differences(r shadow.Report) console.Table {
	caption := "The candidate " + r.Candidate + " would decide otherwise"
	for _, result := range slices.Sorted(maps.Keys(r.Counts)) {
		caption += fmt.Sprintf("; %s: %d", result, r.Counts[result])
	}
	t := console.Table{Caption: caption, Head: []string{"Change", "Times", "Last", "Tool",
		"Principal", "Checks", "Examples"}}
	for _, g := range r.Groups {
		var examples []string
		for _, x := range g.Examples {
			examples = append(examples, x.DecisionID+" on "+x.On+": "+x.Says)
		}
		t.Rows = append(t.Rows, []string{g.Change, strconv.Itoa(g.Times),
			g.Last.Format(time.RFC3339), g.Tool, g.Principal, strings.Join(g.Rules, ", "),
			strings.Join(examples, "\n")})
	}
	return t
}

func (r *panels) budgets(ctx context.Context) ([]console.Table, error) {
	u, err := r.store.Usage(ctx)
	if err != nil {
		return nil, err
	}
	t := console.Table{Caption: fmt.Sprintf("Spent or reserved today (UTC); %d requests wait for "+
		"a person", u.Waiting), Head: []string{"Principal", "US dollars"}}
	for _, who := range slices.Sorted(maps.Keys(u.USDMicros)) {
		t.Rows = append(t.Rows, []string{who, fmt.Sprintf("%.6f", float64(u.USDMicros[who])/1e6)})
	}
	return []console.Table{t}, nil
}
