package load

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/policy"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Inventory is what the names in a policy are held against. Names of a nil list are not checked.
// It takes no part in decisions. The tests of a site make their questions of it.
type Inventory struct {
	Tools []*terms.Tool // of the lock
	Nodes []terms.Node  // of the configuration
}

func (i Inventory) names() (names []string) {
	for _, n := range i.Nodes {
		names = append(names, n.Name)
	}
	return names
}

// Candidate is one policy that is fit to decide. It does not change.
type Candidate struct {
	Rules    *policy.Rules
	Bundle   []byte   // what [FromBundle] makes the same candidate of; nil once in force
	Warnings []string // names that nothing in the lock has, each with its place
	Idle     []string // what is granted and can never work, each with its place

	modules, tests map[string]*ast.Module // tests are the site's
	helpers        files                  // of tests: are parsed when tests run
	site           files                  // the files of the site
	wellTyped      bool                   // all modules are this program's: see compile
	base           map[string]any         // data as OPA's values; see baseData
	caps           *ast.Capabilities
	schemas        *ast.SchemaSet
	data           map[string]any
	places         map[string]string // file:line by path in the site's data
	inventory      Inventory
	compiler       *ast.Compiler
}

// Data is the data of the site and of the command grammar.
func (c *Candidate) Data() map[string]any { return c.data }

// store holds the data, and more beside it.
func (c *Candidate) store(more map[string]any) (storage.Store, error) {
	if c.base == nil {
		base := map[string]any{}
		for name, v := range c.data {
			value, err := ast.InterfaceToValue(v)
			if err != nil {
				return nil, fmt.Errorf("reading data.%s: %w", name, err)
			}
			base[name] = value
		}
		c.base = base
	}
	data := maps.Clone(c.base)
	maps.Copy(data, more)
	return inmem.NewFromObjectWithOpts(data, inmem.OptRoundTripOnWrite(false),
		inmem.OptReturnASTValuesOnRead(true)), nil
}

// ask returns the value of a query without an input, nil where it is undefined. More data can be
// laid beside the site's.
func (c *Candidate) ask(ctx context.Context, query string, more map[string]any) (any, error) {
	v, err := c.query(ctx, query, more)
	if err != nil || v == nil {
		return nil, err
	}
	return ast.JSON(v)
}

// query is ask as OPA has the value.
func (c *Candidate) query(ctx context.Context, query string, more map[string]any) (
	v ast.Value, err error) {
	body, err := ast.ParseBody("answer = " + query)
	if err != nil {
		return nil, err
	}
	if body, err = c.compiler.QueryCompiler().Compile(body); err != nil {
		return nil, err
	}
	store, err := c.store(more)
	if err != nil {
		return nil, err
	}
	txn, err := store.NewTransaction(ctx)
	if err != nil {
		return nil, err
	}
	defer store.Abort(ctx, txn)
	return v, topdown.NewQuery(body).WithCompiler(c.compiler).WithStore(store).
		WithTransaction(txn).WithStrictBuiltinErrors(true).
		Iter(ctx, func(result topdown.QueryResult) error {
			v = result[ast.Var("answer")].Value
			return nil
		})
}

func (c *Candidate) newCompiler() *ast.Compiler {
	return ast.NewCompiler().WithStrict(true).WithCapabilities(c.caps).WithSchemas(c.schemas).
		WithUseTypeCheckAnnotations(true).SetErrorLimit(20)
}

// parseModule refuses a module outside its owner's packages. It may be called concurrently.
func (c *Candidate) parseModule(name string, data []byte) (*ast.Module, error) {
	m, err := ast.ParseModuleWithOpts(name, string(data),
		// annotations say of what type input and data are, for the check of types
		ast.ParserOptions{ProcessAnnotation: !c.wellTyped, Capabilities: c.caps,
			RegoVersion: ast.RegoV1})
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("%s: is empty", name)
	}
	owner, _, _ := strings.Cut(name, "/")
	if pkg := m.Package.Path.String(); !strings.HasPrefix(pkg+".", "data.caponier."+owner+".") {
		return nil, fmt.Errorf("%s: package %s does not belong in %s: its packages are "+
			"caponier.%s and those below it",
			m.Package.Location, strings.TrimPrefix(pkg, "data."), owner, owner)
	}
	return m, nil
}

func (c *Candidate) add(name string, m *ast.Module) {
	if strings.HasSuffix(name, testSuffix) {
		c.tests[name] = m
	} else {
		c.modules[name] = m
	}
}

// owned reports whether a file is the site's.
func owned(name string) bool { return strings.HasPrefix(name, "site/") }

// at returns what stands below a path of keys, nil where nothing does.
func at(data map[string]any, keys ...string) any {
	var v any = data
	for _, k := range keys {
		m, _ := v.(map[string]any)
		v = m[k]
	}
	return v
}

func list(data map[string]any, keys ...string) []any {
	l, _ := at(data, keys...).([]any)
	return l
}

func keys(data map[string]any, path ...string) []string {
	m, _ := at(data, path...).(map[string]any)
	return slices.Sorted(maps.Keys(m))
}
